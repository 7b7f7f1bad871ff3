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
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

func watching(dir string, paths ...string) func(*spec.Spec) {
	return func(sp *spec.Spec) {
		sp.Pool.Dir, sp.Watch.Paths, sp.Watch.Debounce = dir, paths, spec.Duration(20*time.Millisecond)
	}
}

func TestChangedFilesAreSignalledAndLogged(t *testing.T) {
	dir := t.TempDir()
	processes, control, log := supervisor(t), newFakeTemporal(), &logtest.Log{}
	start(t, processes, "p/0", watching(dir, "."), "sleep", "1000")
	f := newFileWatches(outboxTo(t, control).changed, processes, "h", slog.New(slog.NewTextHandler(log, nil)))
	background(t, f.run)
	file := filepath.Join(dir, "main.py")
	require.Eventually(t, func() bool { // the first scan opens the watch
		require.NoError(t, os.WriteFile(file, []byte("new"), 0o644))
		return len(control.signals) > 0
	}, waitTimeout, 100*time.Millisecond)
	require.Equal(t, sent{"tempool/p", "files-changed", api.FilesChanged{Pool: "p", Host: "h", Files: []string{file}}},
		control.next(t))
	require.Contains(t, log.String(), "file="+file)
}

func TestWatchesFollowTheNewestProcessOfAPool(t *testing.T) {
	processes := supervisor(t)
	one, two := t.TempDir(), t.TempDir()
	f := newFileWatches(outboxTo(t, newFakeTemporal()).changed, processes, "h", slog.New(slog.DiscardHandler))
	t.Cleanup(func() { // as run does
		for _, p := range f.pools {
			p.close()
		}
	})
	now := time.Now()
	f.scan(now)
	require.Empty(t, f.pools)

	first := start(t, processes, "p/0", watching(one, "."), "sleep", "1000")
	f.scan(now)
	current := f.pools["p"]
	require.NotNil(t, current.watcher)
	f.scan(now)
	require.Same(t, current, f.pools["p"], "nothing has changed")

	second := start(t, processes, "p/1", watching(two, "."), "sleep", "1000")
	f.scan(now)
	require.Equal(t, two, f.pools["p"].dir)

	for _, p := range []*process.Process{first, second} {
		_, err := p.Stop(t.Context(), 0)
		require.NoError(t, err)
	}
	f.scan(now.Add(f.linger))
	require.Contains(t, f.pools, "p", "the files of a program that cannot start stay watched")
	f.scan(now.Add(f.linger + time.Second))
	require.Empty(t, f.pools)

	start(t, processes, "p/2", watching(one, "."), "sleep", "1000")
	f.scan(now)
	require.Contains(t, f.pools, "p")
	start(t, processes, "p/3", watching(one), "sleep", "1000")
	f.scan(now)
	require.Empty(t, f.pools, "the newest spec watches nothing")
}
