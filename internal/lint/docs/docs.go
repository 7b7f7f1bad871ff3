// Package docs reads the repository's documentation and code for the tests that compare the two. Its own tests check
// that links, paths and names in the documentation exist, and that it names what exists.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Root returns the folder of the repository, for a test of any of its packages.
func Root(t *testing.T) string {
	t.Helper()
	folder, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		parent := filepath.Dir(folder)
		require.NotEqual(t, parent, folder, "no folder above the test has a go.mod")
		folder = parent
	}
}

// Read returns the text of a file, named relative to Root with slashes.
func Read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(t), filepath.FromSlash(name)))
	require.NoError(t, err)
	return string(text)
}

// Files returns the paths, relative to Root, of the files that keep accepts. Dependencies of examples and hidden
// folders are left out.
func Files(t *testing.T, keep func(path string) bool) (found []string) {
	t.Helper()
	require.NoError(t, fs.WalkDir(os.DirFS(Root(t)), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules"):
			return fs.SkipDir
		case !entry.IsDir() && keep(name):
			found = append(found, name)
		}
		return nil
	}))
	return found
}

// Texts returns the files that the patterns match, by their names relative to Root. Each pattern must match a file.
func Texts(t *testing.T, patterns ...string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range patterns {
		files, err := fs.Glob(os.DirFS(Root(t)), pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, name := range files {
			texts[name] = Read(t, name)
		}
	}
	return texts
}

// FirstColumn returns the first cell of each row of the table with the head, which is a whole line such as "| flag |
// meaning |".
func FirstColumn(t *testing.T, text, head string) []string {
	t.Helper()
	_, rest, found := strings.Cut(text, head+"\n")
	require.True(t, found, "no table %q", head)
	table, _, _ := strings.Cut(rest, "\n\n")
	var cells []string
	for row := range strings.Lines(table) {
		cell, _, _ := strings.Cut(row, " | ")
		cells = append(cells, cell)
	}
	return cells
}
