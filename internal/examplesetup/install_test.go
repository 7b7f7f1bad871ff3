package examplesetup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// example is a folder with all that is expected of one.
func example(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"package.json": `{"name": "x"}`, "package-lock.json": `{"name": "x", "lockfileVersion": 3}`, ".npmrc": "engine-strict=true\n",
		"pool.toml": "# a pool\n", "data/a.txt": "a", "node_modules/stale/index.js": "",
	} {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return folder
}

// fakeNPM puts an npm on the PATH that runs a script and notes its arguments, a line each time, in the file whose path is returned.
func fakeNPM(t *testing.T, script string) string {
	t.Helper()
	bin := t.TempDir()
	runs := filepath.Join(bin, "runs")
	text := fmt.Sprintf("#!/bin/sh\necho \"$@\" >> '%s'\n%s\n", runs, script)
	require.NoError(t, os.WriteFile(filepath.Join(bin, "npm"), []byte(text), 0o755))
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	return runs
}

func linesOf(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

const installs = `mkdir node_modules && cp package-lock.json .npmrc node_modules/`

func TestACopyHasTheExampleAndThePackagesOfItsLockFile(t *testing.T) {
	runs := fakeNPM(t, installs)
	from, into := example(t), t.TempDir()
	require.NoError(t, installer{folder: t.TempDir()}.copy(t.Context(), from, into))
	for _, name := range []string{"pool.toml", "data/a.txt", "node_modules/package-lock.json", "node_modules/.npmrc"} {
		require.FileExists(t, filepath.Join(into, name))
	}
	require.NoDirExists(t, filepath.Join(into, "node_modules", "stale"))
	require.Equal(t, []string{"ci --ignore-scripts --no-audit --no-fund"}, linesOf(t, runs))
}

func TestPackagesAreInstalledOnceForAllWhoNeedThem(t *testing.T) {
	runs := fakeNPM(t, installs)
	from, i := example(t), installer{folder: t.TempDir()}
	var all sync.WaitGroup
	found, failed := make([]string, 8), make([]error, 8)
	for n := range found {
		all.Go(func() { found[n], failed[n] = i.ensure(t.Context(), from) })
	}
	all.Wait()
	for n := range found {
		require.NoError(t, failed[n])
		require.Equal(t, found[0], found[n])
	}
	require.Len(t, linesOf(t, runs), 1)

	require.NoError(t, os.WriteFile(filepath.Join(from, "package-lock.json"), []byte(`{"name": "y"}`), 0o644))
	other, err := i.ensure(t.Context(), from)
	require.NoError(t, err)
	require.NotEqual(t, found[0], other, "another lock file has packages of its own")
	require.DirExists(t, found[0])
	require.Len(t, linesOf(t, runs), 2)
}

func TestAFailedInstallationSaysWhyAndLeavesNothing(t *testing.T) {
	fakeNPM(t, `mkdir node_modules; echo "ECONNREFUSED: no such network" >&2; exit 1`)
	i := installer{folder: t.TempDir()}
	_, err := i.ensure(t.Context(), example(t))
	require.ErrorContains(t, err, "npm ci: exit status 1; it said:\nECONNREFUSED: no such network")
	left, err := os.ReadDir(i.folder)
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Equal(t, "lock", left[0].Name())
}

func TestWithoutNPMTheErrorSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := installer{folder: t.TempDir()}.ensure(t.Context(), example(t))
	require.ErrorContains(t, err, "there is no npm on the PATH: install Node.js 20 or newer")
}

func TestAnExampleWithoutLockFileIsRefused(t *testing.T) {
	from := example(t)
	require.NoError(t, os.Remove(filepath.Join(from, "package-lock.json")))
	_, err := installer{folder: t.TempDir()}.ensure(t.Context(), from)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestWhatAKilledInstallerLeftIsRemoved(t *testing.T) {
	fakeNPM(t, installs)
	i := installer{folder: t.TempDir()}
	left := filepath.Join(i.folder, scratchPrefix+"1")
	require.NoError(t, os.MkdirAll(filepath.Join(left, modulesName), 0o755))
	_, err := i.ensure(t.Context(), example(t))
	require.NoError(t, err)
	require.NoDirExists(t, left)
}

func TestPackagesThatSomebodyRemovedAreInstalledAgain(t *testing.T) {
	fakeNPM(t, installs)
	from, i := example(t), installer{folder: t.TempDir()}
	modules, err := i.ensure(t.Context(), from)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(modules))
	again, err := i.ensure(t.Context(), from)
	require.NoError(t, err)
	require.Equal(t, modules, again)
	require.DirExists(t, modules)
}

func TestTheWaitForAnotherInstallerEndsWithTheContext(t *testing.T) {
	i := installer{folder: t.TempDir()}
	unlock, err := i.lock(t.Context())
	require.NoError(t, err)
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = i.ensure(ctx, example(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "wait for another process")
}

func TestAnInstallationEndsWithTheContext(t *testing.T) {
	runs := fakeNPM(t, `exec sleep 1000`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	from, i := example(t), installer{folder: t.TempDir()}
	go func() {
		_, err := i.ensure(ctx, from)
		failed <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(runs); return err == nil }, 20*time.Second, 5*time.Millisecond)
	cancel()
	select {
	case err := <-failed:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(20 * time.Second):
		require.Fail(t, "the installation goes on")
	}
}
