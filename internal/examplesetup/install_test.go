package examplesetup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// waitTimeout bounds each wait; only a failing test waits so long.
const waitTimeout = 3 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// example returns a folder with all files of an example.
func example(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"package.json": `{"name": "x"}`, "package-lock.json": `{"name": "x", "lockfileVersion": 3}`,
		".npmrc":    "engine-strict=true\n",
		"pool.toml": "# a pool\n", "data/a.txt": "a", "node_modules/stale/index.js": "",
	} {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return folder
}

// fakeNPM puts an npm on the PATH that runs a script and appends its arguments as a line to the returned file.
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

func TestACopyHasTheExampleAndItsPackages(t *testing.T) {
	runs := fakeNPM(t, installs)
	from, into := example(t), t.TempDir()
	require.NoError(t, copyExample(t.Context(), t.TempDir(), from, into))
	for _, name := range []string{"pool.toml", "data/a.txt", "node_modules/package-lock.json", "node_modules/.npmrc"} {
		require.FileExists(t, filepath.Join(into, name))
	}
	require.NoDirExists(t, filepath.Join(into, "node_modules", "stale"))
	require.Equal(t, []string{"ci --ignore-scripts --no-audit --no-fund"}, linesOf(t, runs))
}

func TestEachLockFileHasItsOwnPackages(t *testing.T) {
	runs := fakeNPM(t, installs)
	from, cache := example(t), t.TempDir()
	first, err := ensurePackages(t.Context(), cache, from)
	require.NoError(t, err)
	again, err := ensurePackages(t.Context(), cache, from)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Len(t, linesOf(t, runs), 1)

	require.NoError(t, os.WriteFile(filepath.Join(from, "package-lock.json"), []byte(`{"name": "y"}`), 0o644))
	other, err := ensurePackages(t.Context(), cache, from)
	require.NoError(t, err)
	require.NotEqual(t, first, other)
	require.DirExists(t, first)
	require.Len(t, linesOf(t, runs), 2)
}

func TestAFailedInstallationReportsNPMsOutput(t *testing.T) {
	fakeNPM(t, `mkdir node_modules; echo "ECONNREFUSED: no such network" >&2; exit 1`)
	_, err := ensurePackages(t.Context(), t.TempDir(), example(t))
	require.ErrorContains(t, err, "npm ci: exit status 1; its output:\nECONNREFUSED: no such network")
}

func TestWithoutNPMTheErrorSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := ensurePackages(t.Context(), t.TempDir(), example(t))
	require.ErrorContains(t, err, "npm is not on the PATH; install Node.js 20 or newer")
}

func TestAnExampleWithoutALockFileFails(t *testing.T) {
	from := example(t)
	require.NoError(t, os.Remove(filepath.Join(from, "package-lock.json")))
	_, err := ensurePackages(t.Context(), t.TempDir(), from)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestRemovedPackagesAreInstalledAgain(t *testing.T) {
	fakeNPM(t, installs)
	from, cache := example(t), t.TempDir()
	modules, err := ensurePackages(t.Context(), cache, from)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(modules))
	again, err := ensurePackages(t.Context(), cache, from)
	require.NoError(t, err)
	require.Equal(t, modules, again)
	require.DirExists(t, modules)
}

func TestAnInstallationEndsWithTheContext(t *testing.T) {
	runs := fakeNPM(t, `exec sleep 1000`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	from, cache := example(t), t.TempDir()
	go func() {
		_, err := ensurePackages(ctx, cache, from)
		failed <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(runs); return err == nil }, waitTimeout, 5*time.Millisecond)
	cancel()
	select {
	case err := <-failed:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(waitTimeout):
		require.Fail(t, "the installation did not end")
	}
}
