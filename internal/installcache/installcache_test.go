package installcache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func install(_ context.Context, scratch string) error {
	return os.WriteFile(filepath.Join(scratch, "program"), []byte("x"), 0o600)
}

func TestConcurrentCallersInstallOnce(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "cache")
	var installs atomic.Int32
	var callers sync.WaitGroup
	paths, failures := make([]string, 8), make([]error, 8)
	for i := range paths {
		callers.Go(func() {
			paths[i], failures[i] = Ensure(t.Context(), folder, "v1", "program",
				func(ctx context.Context, scratch string) error {
					installs.Add(1)
					return install(ctx, scratch)
				})
		})
	}
	callers.Wait()
	for i, path := range paths {
		require.NoError(t, failures[i])
		require.Equal(t, filepath.Join(folder, "v1", "program"), path)
		require.FileExists(t, path)
	}
	require.EqualValues(t, 1, installs.Load())
}

func TestAFailedInstallationLeavesOnlyTheLock(t *testing.T) {
	folder := t.TempDir()
	failure := errors.New("no network")
	_, err := Ensure(t.Context(), folder, "v1", "program", func(ctx context.Context, scratch string) error {
		return errors.Join(install(ctx, scratch), failure)
	})
	require.ErrorIs(t, err, failure)
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Equal(t, "lock", left[0].Name())
}

func TestLeftoversOfKilledProcessesAreRemoved(t *testing.T) {
	folder := t.TempDir()
	scratch := filepath.Join(folder, scratchName)
	incomplete := filepath.Join(folder, "v1", "other")
	require.NoError(t, os.MkdirAll(scratch, 0o755))
	require.NoError(t, os.MkdirAll(incomplete, 0o755))
	path, err := Ensure(t.Context(), folder, "v1", "program", install)
	require.NoError(t, err)
	require.FileExists(t, path)
	require.NoDirExists(t, scratch)
	require.NoDirExists(t, incomplete)
}

func TestWaitingForAnotherProcessEndsWithTheContext(t *testing.T) {
	folder := t.TempDir()
	unlock, err := lock(t.Context(), folder)
	require.NoError(t, err)
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 2*lockInterval)
	defer cancel()
	_, err = Ensure(ctx, folder, "v1", "program", install)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "wait for another process")
}
