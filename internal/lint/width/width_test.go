// Package width checks that the lines of Go files fit beside each other.
package width

import (
	"go/scanner"
	"go/token"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/lint/docs"
)

// maxWidth is in characters, of which a tab is one.
const maxWidth = 120

func TestNoLineIsWide(t *testing.T) {
	files := docs.Files(t, func(name string) bool { return path.Ext(name) == ".go" })
	for _, name := range files {
		source := docs.Read(t, name)
		raw := rawLines([]byte(source))
		for i, line := range strings.Split(source, "\n") {
			if width := utf8.RuneCountInString(line); width > maxWidth && !raw[i+1] {
				t.Errorf("%s:%d has %d characters, more than %d; break it", name, i+1, width, maxWidth)
			}
		}
	}
	require.Greater(t, len(files), 500)
}

// rawLines are the lines with a part of a raw string, which may not be broken.
func rawLines(source []byte) map[int]bool {
	file := token.NewFileSet().AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	lines := map[int]bool{}
	for {
		position, kind, literal := s.Scan()
		switch {
		case kind == token.EOF:
			return lines
		case kind == token.STRING && literal[0] == '`':
			first := file.Line(position)
			for line := range strings.Count(literal, "\n") + 1 {
				lines[first+line] = true
			}
		}
	}
}
