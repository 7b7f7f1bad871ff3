package worker

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/logging/logtest"
	"github.com/tempool/tempool/spec"
)

func watching(dir string, paths ...string) func(*spec.Spec) {
	return func(sp *spec.Spec) {
		sp.Pool.Dir, sp.Watch.Paths, sp.Watch.Debounce = dir, paths, spec.Duration(20*time.Millisecond)
	}
}

// changes are what was reported.
type changes chan api.FilesChanged

func (c changes) add(pool, host string, files []string) {
	c <- api.FilesChanged{Pool: pool, Host: host, Files: files}
}

func TestChangedFilesAreReportedAndLogged(t *testing.T) {
	dir := t.TempDir()
	processes, reported, log := supervisor(t), make(changes, 1000), &logtest.Log{}
	start(t, processes, "p/0", watching(dir, "."), "sleep", "1000")
	f := newFileWatches(reported.add, processes, "h", slog.New(slog.NewTextHandler(log, nil)))
	background(t, f.run)
	file := filepath.Join(dir, "main.py")
	require.Eventually(t, func() bool { // the first scan opens the watch
		require.NoError(t, os.WriteFile(file, []byte("new"), 0o644))
		return len(reported) > 0
	}, waitTimeout, 100*time.Millisecond)
	require.Equal(t, api.FilesChanged{Pool: "p", Host: "h", Files: []string{file}}, next(t, reported))
	require.Contains(t, log.String(), "file="+file)
}

func TestAWatchDependsOnTheSpecsFilesAlone(t *testing.T) {
	processes, dir := supervisor(t), t.TempDir()
	f := newFileWatches(nil, processes, "h", slog.New(slog.DiscardHandler))
	key := func(worker, dir string, paths ...string) any {
		return f.key(start(t, processes, worker, watching(dir, paths...), "sleep", "1000"))
	}
	first := key("p/0", dir, ".")
	require.Equal(t, first, key("p/1", dir, "."))
	require.NotEqual(t, first, key("p/2", t.TempDir(), "."))
	require.NotEqual(t, first, key("p/3", dir, "main.py"))
	require.NotNil(t, key("p/4", dir), "the newest process ends the watch if its spec watches nothing")
}

func TestAWatchReportsWhatHasChangedSinceTheOldestProcess(t *testing.T) {
	processes, reported, dir := supervisor(t), make(changes, 1000), t.TempDir()
	f := newFileWatches(reported.add, processes, "h", slog.New(slog.DiscardHandler))
	start(t, processes, "p/0", watching(dir, "."), "sleep", "1000")
	file := filepath.Join(dir, "main.py")
	require.NoError(t, os.WriteFile(file, []byte("new"), 0o644))
	newest := start(t, processes, "p/1", watching(dir, "."), "sleep", "1000")
	end, err := f.open("p", newest)
	require.NoError(t, err)
	defer end()
	require.Equal(t, api.FilesChanged{Pool: "p", Host: "h", Files: []string{file}}, next(t, reported))

	nothing, err := f.open("p", start(t, processes, "p/2", watching(dir), "sleep", "1000"))
	require.NoError(t, err)
	nothing()
}
