package filewatch

import (
	"path"
	"slices"
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
	segments   []string // globs of path.Match, or "**"
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
	p.segments = strings.Split(negations.Replace(text), "/")
	if !anchored {
		p.segments = slices.Insert(p.segments, 0, anyFolders)
	}
	return &p
}

// anyFolders is the segment that matches any number of folders, or at the end of a pattern everything below.
const anyFolders = "**"

// negations makes the negated sets of gitignore(5) those of path.Match.
var negations = strings.NewReplacer(`\[!`, `\[!`, "[!", "[^")

// matchesPath reports whether segments match all of a path. A segment that path.Match does not accept matches nothing.
// Only the last anyFolders is retried with one folder more, which suffices: the time is bounded by the product of both
// lengths.
func matchesPath(segments, path []string) bool {
	last, taken := -1, 0 // the last anyFolders, and where what follows it begins in path
	s, at := 0, 0
	for at < len(path) {
		switch {
		case s < len(segments) && segments[s] == anyFolders:
			last, taken = s, at
			s++
		case s < len(segments) && matchesName(segments[s], path[at]):
			s++
			at++
		case last >= 0:
			taken++
			s, at = last+1, taken
		default:
			return false
		}
	}
	return s == len(segments)
}

func matchesName(glob, name string) bool {
	matched, err := path.Match(glob, name)
	return matched && err == nil
}

// ignores reports whether a path with slashes, relative to the base folder, is ignored.
func (g ignore) ignores(name string, isFolder bool) bool {
	segments := strings.Split(path.Clean(name), "/")
	for n := 1; n < len(segments); n++ {
		if g.matches(segments[:n], true) {
			return true
		}
	}
	return g.matches(segments, isFolder)
}

func (g ignore) matches(path []string, isFolder bool) bool {
	ignored := false
	for _, p := range g.patterns {
		if (isFolder || !p.folderOnly) && matchesPath(p.segments, path) {
			ignored = !p.negated
		}
	}
	return ignored
}
