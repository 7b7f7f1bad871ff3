package worker

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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
	f := newFileWatches(control.signalOnce, processes, "h", slog.New(slog.NewTextHandler(log, nil)))
	background(t, f.run)
	file := filepath.Join(dir, "main.py")
	require.Eventually(t, func() bool { // the first scan opens the watch
		require.NoError(t, os.WriteFile(file, []byte("new"), 0o644))
		return len(control.signals) > 0
	}, waitTimeout, 100*time.Millisecond)
	require.Equal(t, sent{"tempool/p", "files-changed", api.FilesChanged{Pool: "p", Host: "h", Files: []string{file}}}, control.next(t))
	require.Contains(t, log.String(), "file="+file)
}

func TestAFailedSignalOfAChangeIsRetried(t *testing.T) {
	dir := t.TempDir()
	processes, control, log := supervisor(t), newFakeTemporal(), &logtest.Log{}
	start(t, processes, "p/0", watching(dir, "."), "sleep", "1000")
	control.fail(errors.New("Temporal is unavailable"))
	f := newFileWatches(control.signalOnce, processes, "h", slog.New(slog.NewTextHandler(log, nil)))
	background(t, f.run)
	file := filepath.Join(dir, "main.py")
	require.Eventually(t, func() bool {
		require.NoError(t, os.WriteFile(file, []byte("new"), 0o644))
		return strings.Contains(log.String(), "signalling changed files to a pool failed")
	}, waitTimeout, 100*time.Millisecond)
	control.fail(nil)
	require.Equal(t, []string{file}, control.next(t).message.(api.FilesChanged).Files)
}

// Temporal takes the signal, and its answer is lost. A second signal would restart the pool's workers twice.
func TestAChangeWhoseAnswerIsLostIsSignalledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := newFakeTemporal()
		control.loseAnswers(errors.New("the connection was lost"))
		f := newFileWatches(control.signalOnce, nil, "h", slog.New(slog.DiscardHandler))
		var group sync.WaitGroup
		group.Go(func() {
			for range 2 {
				f.deliver(t.Context(), "p", []string{"main.py"})
			}
		})
		time.AfterFunc(3*fileRetry, func() { control.loseAnswers(nil) })
		group.Wait()
		require.Len(t, control.signals, 2, "one for each change")
	})
}

func TestWatchesFollowTheNewestProcessOfAPool(t *testing.T) {
	processes := supervisor(t)
	one, two := t.TempDir(), t.TempDir()
	f := newFileWatches(newFakeTemporal().signalOnce, processes, "h", slog.New(slog.DiscardHandler))
	t.Cleanup(func() { // as run does
		for _, p := range f.pools {
			p.close()
		}
	})
	now := time.Now()
	f.scan(t.Context(), now)
	require.Empty(t, f.pools)

	first := start(t, processes, "p/0", watching(one, "."), "sleep", "1000")
	f.scan(t.Context(), now)
	current := f.pools["p"]
	require.NotNil(t, current.watcher)
	f.scan(t.Context(), now)
	require.Same(t, current, f.pools["p"], "nothing has changed")

	second := start(t, processes, "p/1", watching(two, "."), "sleep", "1000")
	f.scan(t.Context(), now)
	require.Equal(t, two, f.pools["p"].dir)

	for _, p := range []*process.Process{first, second} {
		_, err := p.Stop(t.Context(), 0)
		require.NoError(t, err)
	}
	f.scan(t.Context(), now.Add(f.linger))
	require.Contains(t, f.pools, "p", "the files of a program that cannot start stay watched")
	f.scan(t.Context(), now.Add(f.linger+time.Second))
	require.Empty(t, f.pools)

	start(t, processes, "p/2", watching(one, "."), "sleep", "1000")
	f.scan(t.Context(), now)
	require.Contains(t, f.pools, "p")
	start(t, processes, "p/3", watching(one), "sleep", "1000")
	f.scan(t.Context(), now)
	require.Empty(t, f.pools, "the newest spec watches nothing")
}

func TestASignalNamesABoundedNumberOfFiles(t *testing.T) {
	control := newFakeTemporal()
	f := newFileWatches(control.signalOnce, nil, "h", slog.New(slog.DiscardHandler))
	files := strings.Split(strings.Repeat("x ", 99)+"x", " ")
	require.True(t, f.send(t.Context(), "p", files, "request"))
	message := control.next(t).message.(api.FilesChanged)
	require.Len(t, message.Files, maxReportedFiles)
	require.Equal(t, 100-maxReportedFiles, message.More)
}
