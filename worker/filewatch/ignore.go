package filewatch

import (
	"path"
	"regexp"
	"strings"
)

// alwaysIgnored are patterns that precede the configured ones, which can negate them with "!". Programs write some of
// these files while running, so a restart for them would never end; the others are not source files.
var alwaysIgnored = []string{
	".git", ".hg", ".svn", "__pycache__", "*.py[co]", "node_modules",
	"*~", "*.sw[pox]", ".#*", "#*#", "4913", ".DS_Store",
}

// ignore holds patterns as in gitignore(5): later ones win; "!" negates; a pattern with a slash at its start or in its
// middle is relative to the base folder, others match at any depth; a slash at the end matches folders only; "*", "?"
// and "[…]" do not match a slash, "**" does. Everything in an ignored folder is ignored.
type ignore struct{ patterns []pattern }

type pattern struct {
	match      *regexp.Regexp
	folderOnly bool
	negated    bool
}

func newIgnore(given []string) ignore {
	var all ignore
	for _, text := range append(append([]string{}, alwaysIgnored...), given...) {
		if p := compile(text); p != nil {
			all.patterns = append(all.patterns, *p)
		}
	}
	return all
}

// compile returns nil for an empty pattern.
func compile(text string) *pattern {
	var p pattern
	text = strings.ToValidUTF8(text, "\uFFFD") // regexp.MustCompile accepts everything else that translate writes
	if rest, found := strings.CutPrefix(text, "!"); found {
		p.negated, text = true, rest
	}
	if rest, found := strings.CutSuffix(text, "/"); found {
		p.folderOnly, text = true, rest
	}
	anchored := strings.Contains(text, "/")
	text = strings.TrimPrefix(text, "/")
	if text == "" {
		return nil
	}
	expression := translate(text)
	if !anchored {
		expression = "(?:.*/)?" + expression
	}
	p.match = regexp.MustCompile("^" + expression + "$")
	return &p
}

// translate converts a glob to a regular expression.
func translate(glob string) string {
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		rest := glob[i:]
		switch {
		case strings.HasPrefix(rest, "**/"):
			b.WriteString("(?:.*/)?")
			i += len("**/") - 1
		case rest == "**":
			b.WriteString(".*")
			i++
		case rest[0] == '*':
			b.WriteString("[^/]*")
		case rest[0] == '?':
			b.WriteString("[^/]")
		case rest[0] == '[' && strings.IndexByte(rest[1:], ']') > 0:
			end := 1 + strings.IndexByte(rest[1:], ']')
			set := strings.ReplaceAll(rest[1:end], `\`, `\\`)
			if negated, found := strings.CutPrefix(set, "!"); found {
				set = "^/" + negated
			}
			if _, err := regexp.Compile("[" + set + "]"); err != nil {
				b.WriteString(`\[`) // an invalid range matches itself
				continue
			}
			b.WriteString("[" + set + "]")
			i += end
		case rest[0] == '\\' && len(rest) > 1:
			i++
			b.WriteString(regexp.QuoteMeta(string(glob[i])))
		default:
			b.WriteString(regexp.QuoteMeta(string(glob[i])))
		}
	}
	return b.String()
}

// ignores reports whether a path with slashes, relative to the base folder, is ignored.
func (g ignore) ignores(name string, isFolder bool) bool {
	name = path.Clean(name)
	for i := range name {
		if name[i] == '/' && i > 0 && g.matches(name[:i], true) {
			return true
		}
	}
	return g.matches(name, isFolder)
}

func (g ignore) matches(name string, isFolder bool) bool {
	ignored := false
	for _, p := range g.patterns {
		if (isFolder || !p.folderOnly) && p.match.MatchString(name) {
			ignored = !p.negated
		}
	}
	return ignored
}
