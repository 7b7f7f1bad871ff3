package filewatch

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool/internal/logging/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// waitTimeout bounds every wait; only a failing test takes so long.
	waitTimeout = 2 * time.Minute
	debounce    = 30 * time.Millisecond
)

type watch struct {
	*testing.T
	*Watcher
	dir     string
	log     *logtest.Log
	changes chan []string
}

// open creates files in a folder, which is new if o names none, and then watches paths in it.
func open(t *testing.T, o Options, files ...string) watch {
	t.Helper()
	w := watch{T: t, dir: cmp.Or(o.Dir, t.TempDir()), log: &logtest.Log{},
		changes: make(chan []string, 1000)} // more deliveries than any test makes
	for _, file := range files {
		w.put(file, "old")
	}
	o.Dir, o.Debounce, o.Logger = w.dir, debounce, slog.New(slog.NewTextHandler(w.log, nil))
	o.Changed = func(files []string) { w.changes <- files }
	var err error
	w.Watcher, err = Open(o)
	require.NoError(t, err)
	t.Cleanup(w.Watcher.Close)
	return w
}

func (w watch) at(name string) string { return filepath.Join(w.dir, name) }

func (w watch) put(name, text string) {
	w.Helper()
	require.NoError(w, os.MkdirAll(filepath.Dir(w.at(name)), 0o755))
	require.NoError(w, os.WriteFile(w.at(name), []byte(text), 0o644))
}

// until receives changes until all names have changed, and fails if any of never has changed by then. It returns the
// number of deliveries.
func (w watch) until(names []string, never ...string) (deliveries int) {
	w.Helper()
	changed := map[string]bool{}
	missing := func() (left []string) {
		for _, name := range names {
			if !changed[name] {
				left = append(left, name)
			}
		}
		return left
	}
	deadline := time.After(waitTimeout)
	for len(missing()) > 0 {
		select {
		case files := <-w.changes:
			deliveries++
			require.IsIncreasing(w, append([]string{""}, files...))
			for _, file := range files {
				relative, err := filepath.Rel(w.dir, file)
				require.NoError(w, err)
				changed[relative] = true
			}
		case <-deadline:
			require.Fail(w, "no change", "of %v; changed: %v", missing(), changed)
		}
	}
	for _, name := range never {
		require.NotContains(w, changed, name)
	}
	return deliveries
}

func TestAChangedFileIsDeliveredWhenItIsQuiet(t *testing.T) {
	w := open(t, Options{Paths: []string{"."}}, "a.py", "lib/deep/b.py")
	a, err := os.OpenFile(w.at("a.py"), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = a.WriteString("new") // one change: put also truncates the file, which may be delivered before
	require.NoError(t, err)
	require.NoError(t, a.Close())
	w.until([]string{"a.py"})
	w.put("lib/deep/b.py", "new")
	w.until([]string{"lib/deep/b.py"}, "a.py")
}

func TestManyChangesAreDeliveredTogether(t *testing.T) {
	w := open(t, Options{Paths: []string{"."}}, "a.py")
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("f%02d.py", i))
		w.put(names[i], "new")
	}
	require.Less(t, w.until(names), 50)
}

func TestANewFolderIsWatchedWithItsContents(t *testing.T) {
	w := open(t, Options{Paths: []string{"."}}, "a.py")
	w.put("new/deep/er/c.py", "first")
	w.until([]string{"new/deep/er/c.py"})
	w.put("new/deep/er/c.py", "second")
	w.until([]string{"new/deep/er/c.py"})
}

func TestAFolderReplacedByAnotherStaysWatched(t *testing.T) {
	w := open(t, Options{Paths: []string{"app"}}, "app/sub/a.py", "next/sub/a.py")
	require.NoError(t, os.Rename(w.at("app"), w.at("before")))
	require.NoError(t, os.Rename(w.at("next"), w.at("app")))
	w.until([]string{"app/sub/a.py"})
	w.put("app/sub/a.py", "new")
	w.until([]string{"app/sub/a.py"}, "before/sub/a.py")
	w.put("before/sub/a.py", "not watched")
	w.put("app/sub/a.py", "again")
	w.until([]string{"app/sub/a.py"}, "before/sub/a.py")
}

func TestAnEditorThatRenamesIntoPlaceIsSeen(t *testing.T) {
	for name, paths := range map[string][]string{"in a folder": {"."}, "as a file": {"a.py"}} {
		t.Run(name, func(t *testing.T) {
			w := open(t, Options{Paths: paths}, "a.py", "other.py")
			for range 3 {
				w.put(".a.py.swp", "new") // a name that is ignored
				require.NoError(t, os.Rename(w.at(".a.py.swp"), w.at("a.py")))
				w.until([]string{"a.py"}, ".a.py.swp")
			}
		})
	}
}

func TestRemovedFilesAreDelivered(t *testing.T) {
	w := open(t, Options{Paths: []string{"."}}, "a.py", "lib/b.py")
	require.NoError(t, os.Remove(w.at("a.py")))
	w.until([]string{"a.py"})
	require.NoError(t, os.RemoveAll(w.at("lib")))
	w.until([]string{"lib/b.py"})
}

func TestIgnoredFilesAreNotDelivered(t *testing.T) {
	w := open(t, Options{Paths: []string{"."}, Ignore: []string{"*.log", "/data/", "!node_modules"}},
		"a.py", "data/x", "lib/data/y", "node_modules/m/i.js", "__pycache__/a.pyc", ".git/index")
	for _, name := range []string{"x.log", "lib/y.log", "data/x", "__pycache__/a.pyc", ".git/index", "a.py~"} {
		w.put(name, "new")
	}
	require.NoError(t, os.Chmod(w.at("a.py"), 0o600))
	w.put("lib/data/y", "new")
	w.put("node_modules/m/i.js", "new")
	w.until([]string{"lib/data/y", "node_modules/m/i.js"}, "x.log", "lib/y.log", "data/x", "__pycache__/a.pyc",
		".git/index", "a.py~", "a.py")
}

func TestAConfiguredPathInAnIgnoredFolderIsWatched(t *testing.T) {
	w := open(t, Options{Paths: []string{"node_modules/mine"}},
		"node_modules/mine/a.js", "node_modules/mine/node_modules/b.js")
	w.put("node_modules/mine/node_modules/b.js", "new")
	w.put("node_modules/mine/a.js", "new")
	w.until([]string{"node_modules/mine/a.js"}, "node_modules/mine/node_modules/b.js")
}

func TestAMissingPathIsLoggedAndWatchedOnceItExists(t *testing.T) {
	w := open(t, Options{Paths: []string{"config/app.toml", "src", "app", ".env"}}, "a.py", "app/a.py")
	require.Contains(t, w.log.String(), "watched path does not exist yet")
	require.Contains(t, w.log.String(), w.at("config/app.toml"))
	w.put("config/app.toml", "first")
	w.until([]string{"config/app.toml"}, "app/a.py")
	w.put("src/main.py", "first")
	w.until([]string{"src/main.py"}, "app/a.py")
	w.put("config/app.toml", "second")
	w.put("src/main.py", "second")
	w.until([]string{"config/app.toml", "src/main.py"}, "app/a.py")
	require.Eventually(t, func() bool { return strings.Contains(w.log.String(), "watched path has appeared") },
		waitTimeout, time.Millisecond)

	require.NoError(t, os.Remove(w.at("config/app.toml")))
	w.until([]string{"config/app.toml"}, "app/a.py")
	w.put(".a.py.swp", "created beside the missing .env")
	w.put("src/main.py", "third")
	w.until([]string{"src/main.py"}, "app/a.py")
}

func TestAFileWhoseFolderIsRemovedAndComesBackStaysWatched(t *testing.T) {
	w := open(t, Options{Paths: []string{"config/app.toml"}}, "config/app.toml", "config/other.toml")
	w.put("config/other.toml", "not watched")
	require.NoError(t, os.Remove(w.at("config/app.toml")))
	w.until([]string{"config/app.toml"}, "config/other.toml")
	require.NoError(t, os.RemoveAll(w.at("config")))
	w.put("config/app.toml", "new")
	w.until([]string{"config/app.toml"}, "config/other.toml")
}

func TestAWatchedLinkToAFolderIsFollowed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink("v1", filepath.Join(dir, "current")))
	w := open(t, Options{Dir: dir, Paths: []string{"current"}}, "v1/lib/a.py")
	w.put("v1/lib/a.py", "two")
	w.until([]string{"current/lib/a.py"})
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		patterns string
		name     string
		folder   bool
		ignored  bool
	}{
		{"*.log", "a.log", false, true},
		{"*.log", "deep/er/a.log", false, true},
		{"*.log", "a.logs", false, false},
		{"/a.log", "a.log", false, true},
		{"/a.log", "deep/a.log", false, false},
		{"data", "data/x/y", false, true},
		{"data/", "data", false, false},
		{"data/", "data", true, true},
		{"data/", "lib/data/x", false, true},
		{"lib/data", "lib/data/x", false, true},
		{"lib/data", "x/lib/data", false, false},
		{"lib/*.py", "lib/a.py", false, true},
		{"lib/*.py", "lib/x/a.py", false, false},
		{"lib/**/a.py", "lib/a.py", false, true},
		{"lib/**/a.py", "lib/x/y/a.py", false, true},
		{"lib/**", "lib/x/y", false, true},
		{"**/tmp", "x/y/tmp/z", false, true},
		{"a?c", "abc", false, true},
		{"a?c", "a/c", false, false},
		{"a[b-d]c", "acc", false, true},
		{"a[!b-d]c", "acc", false, false},
		{"a[!b-d]c", "axc", false, true},
		{"*.log !keep.log", "keep.log", false, false},
		{"*.log !keep.log", "other.log", false, true},
		{"!keep.log *.log", "keep.log", false, true},
		{"data !data/keep", "data/keep", false, true}, // what lies in an ignored folder stays ignored
		{`\*`, "*", false, true},
		{`\*`, "a", false, false},
		{"a.b", "axb", false, false},
		{"a[z-a]", "az", false, false},
		{"a[", "a[", false, false},
		{`\[!a]`, "[!a]", false, true},
		{"lib/**", "lib", true, false},
		{"a/**/b/**/c", "a/b/x/b/y/z/c", false, true},
		{"a/**/b/**/c", "a/x/c/b", false, false},
		{strings.Repeat("**/a/", 30) + "b", strings.Repeat("a/", 60) + "c", false, false},
		{"", "x/__pycache__/a.cpython-312.pyc", false, true},
		{"", "src/.main.py.swp", false, true},
		{"", "src/main.py~", false, true},
		{"", "src/main.py", false, false},
		{"!*.py[co]", "a.pyc", false, false},
	} {
		g := newIgnore(strings.Fields(c.patterns))
		require.Equal(t, c.ignored, g.ignores(c.name, c.folder), "%q %s", c.patterns, c.name)
	}
}

func FuzzPatterns(f *testing.F) {
	f.Add("*.log", "a/b.log")
	f.Add("[!a-", "x")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		newIgnore([]string{pattern}).ignores(name, false)
	})
}

func TestChangesSinceATimeBeforeOpenAreDelivered(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	old := filepath.Join(dir, "old.py")
	require.NoError(t, os.WriteFile(old, nil, 0o600))
	require.NoError(t, os.Chtimes(old, now.Add(-time.Hour), now.Add(-time.Hour)))
	w := open(t, Options{Dir: dir, Since: now.Add(-time.Minute),
		Paths: []string{"old.py", "new.py", "code", filepath.Join(dir, "alone.toml")}},
		"new.py", "new.log", "alone.toml", "code/inside.py")
	require.Equal(t, 1, w.until([]string{"new.py", "alone.toml", "code/inside.py"}, "old.py", "new.log", "code"))
}
