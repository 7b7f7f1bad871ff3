package filewatch

import (
	"path"
	"regexp"
	"strings"
)

// alwaysIgnored are patterns that come before those given, which can take them back with "!". Programs write such files by running, and
// a restart for them would never end; or they are no program's text at all.
var alwaysIgnored = []string{
	".git", ".hg", ".svn", "__pycache__", "*.py[co]", "node_modules",
	"*~", "*.sw[pox]", ".#*", "#*#", "4913", ".DS_Store",
}

// ignore decides what is not watched, by patterns in the manner of gitignore(5): later ones win; "!" takes back; one with a slash at its
// beginning or in its middle counts from the base folder, others match at any depth; a slash at the end means folders only; "*", "?" and
// "[…]" do not match a slash, "**" does. What lies in an ignored folder is ignored.
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
	text = strings.ToValidUTF8(text, "\uFFFD") // the only thing that translate could not make an expression of
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

// translate writes a glob as a regular expression.
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
				b.WriteString(`\[`) // a range that is none stands for itself
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

// ignores decides about a path with slashes, relative to the base folder.
func (g ignore) ignores(name string, isFolder bool) bool {
	name = path.Clean(name)
	for i := range name {
		if name[i] == '/' && i > 0 && g.decides(name[:i], true) {
			return true
		}
	}
	return g.decides(name, isFolder)
}

func (g ignore) decides(name string, isFolder bool) bool {
	ignored := false
	for _, p := range g.patterns {
		if (isFolder || !p.folderOnly) && p.match.MatchString(name) {
			ignored = !p.negated
		}
	}
	return ignored
}
