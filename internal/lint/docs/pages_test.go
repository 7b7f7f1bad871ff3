package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// page is one Markdown file.
type page struct {
	path string // relative to Root, with slashes
	text string
}

// pages returns the documentation: README.md and its like, docs, and the pages of the examples.
func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	for _, name := range Files(t, func(name string) bool {
		return path.Ext(name) == ".md" &&
			(path.Dir(name) == "." || strings.HasPrefix(name, "docs/") || path.Base(name) == "README.md")
	}) {
		all = append(all, page{name, Read(t, name)})
	}
	require.Greater(t, len(all), 30)
	return all
}

var (
	fence = regexp.MustCompile("(?ms)^( *)```.*?^ *```$")
	span  = regexp.MustCompile("`([^`\n]+)`")
)

// prose returns the text without its code blocks.
func (p page) prose() string { return fence.ReplaceAllString(p.text, "") }

// spans returns the code in the lines of prose.
func (p page) spans() []string {
	var code []string
	for _, found := range span.FindAllStringSubmatch(p.prose(), -1) {
		code = append(code, found[1])
	}
	return code
}

// sources returns the text of the Go files below the folders, without tests.
func sources(t *testing.T, folders ...string) string {
	t.Helper()
	var text strings.Builder
	for _, name := range Files(t, func(name string) bool {
		return path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go") &&
			slices.ContainsFunc(folders, func(folder string) bool { return strings.HasPrefix(name, folder) })
	}) {
		text.WriteString(Read(t, name))
	}
	return text.String()
}

// section returns the text below a heading, up to the next one of the same level.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n"+heading+"\n")
	require.True(t, found, "no heading %q", heading)
	level, _, _ := strings.Cut(heading, " ")
	rest, _, _ = strings.Cut(rest, "\n"+level+" ")
	return rest
}

// goFiles parses the Go files of a folder, without tests.
func goFiles(t *testing.T, folder string) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(Root(t), folder, "*.go"))
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
	}
	return files
}
