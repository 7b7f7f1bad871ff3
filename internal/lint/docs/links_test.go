package docs

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	// reference is a page that other files name, such as help texts and comments.
	reference = regexp.MustCompile(`\bdocs/[a-z][a-z/-]*\.md(#[a-z0-9_-]+)?`)
)

// anchor returns the fragment that GitHub gives to a heading.
func anchor(title string) string {
	title = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(title, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ' || r == '-':
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

// anchors returns the fragments of a page.
func anchors(p page) map[string]bool {
	all := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(p.prose(), -1) {
		name := anchor(found[1])
		for n := 1; all[name]; n++ {
			name = fmt.Sprintf("%s-%d", anchor(found[1]), n)
		}
		all[name] = true
	}
	return all
}

func TestLinksResolve(t *testing.T) {
	fragments := map[string]map[string]bool{}
	for _, p := range pages(t) {
		fragments[p.path] = anchors(p)
	}
	var wrong []string
	check := func(in, from, target string) {
		file, fragment, _ := strings.Cut(target, "#")
		if file = path.Join(path.Dir(from), file); strings.HasPrefix(target, "#") {
			file = from
		}
		switch {
		case !exists(t, file):
			wrong = append(wrong, fmt.Sprintf("%s links to %s", in, target))
		case fragment != "" && !fragments[file][fragment]:
			wrong = append(wrong, fmt.Sprintf("%s links to %s, and %s has no such heading", in, target, file))
		}
	}
	for _, p := range pages(t) {
		for _, found := range link.FindAllStringSubmatch(span.ReplaceAllString(p.prose(), "code"), -1) {
			if !strings.Contains(found[1], "://") && !strings.HasPrefix(found[1], "mailto:") {
				check(p.path, p.path, found[1])
			}
		}
	}
	for _, name := range Files(t, func(name string) bool {
		return strings.Contains(".go .py .js .mjs .sh .toml .yml .yaml .json .html .md", path.Ext(name)) &&
			path.Ext(name) != "" || path.Base(name) == "Makefile"
	}) {
		for _, found := range reference.FindAllString(Read(t, name), -1) {
			if strings.HasPrefix(name, "internal/lint/docs/") || path.Ext(name) == ".md" && strings.HasPrefix(name, "docs/") {
				continue
			}
			check(name, "README.md", found)
		}
	}
	require.Empty(t, wrong)
}
