// Package docs checks that the documentation agrees with the tree: links, paths and names in it exist, and it names what exists.
package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the folder of the repository.
const root = "../../.."

// page is one Markdown file.
type page struct {
	path string // relative to root, with slashes
	text string
}

// files returns the paths, relative to root, of the files that keep accepts. Dependencies of examples and hidden folders are left out.
func files(t *testing.T, keep func(path string) bool) []string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		if entry.IsDir() {
			if relative != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules") {
				return filepath.SkipDir
			}
		} else if keep(relative) {
			found = append(found, relative)
		}
		return nil
	}))
	return found
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	require.NoError(t, err)
	return string(text)
}

// pages returns the documentation: README.md and its like, docs, and the pages of the examples.
func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	for _, name := range files(t, func(name string) bool {
		return path.Ext(name) == ".md" && (path.Dir(name) == "." || strings.HasPrefix(name, "docs/") || path.Base(name) == "README.md")
	}) {
		all = append(all, page{name, read(t, name)})
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

// section returns the text below a heading, up to the next one of the same level.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n"+heading+"\n")
	require.True(t, found, "no heading %q", heading)
	level, _, _ := strings.Cut(heading, " ")
	rest, _, _ = strings.Cut(rest, "\n"+level+" ")
	return rest
}

// sources returns the text of the Go files below the folders, without tests.
func sources(t *testing.T, folders ...string) string {
	t.Helper()
	var text strings.Builder
	for _, name := range files(t, func(name string) bool {
		return path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go") && slices.ContainsFunc(folders, func(folder string) bool { return strings.HasPrefix(name, folder) })
	}) {
		text.WriteString(read(t, name))
	}
	return text.String()
}
