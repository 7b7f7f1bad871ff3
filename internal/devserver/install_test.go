package devserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// script writes an executable that prints what a temporal command line with this server prints for --version.
func script(path, server string) error {
	text := fmt.Sprintf("#!/bin/sh\necho 'temporal version 0 (Server %s, UI 2)'\n", server)
	return os.WriteFile(path, []byte(text), 0o755)
}

func provides(server string) func(context.Context, string, string) error {
	return func(_ context.Context, _, program string) error { return script(program, server) }
}

func fails(_ context.Context, _, _ string) error { return errors.New("no way out") }

func newInstaller(t *testing.T) installer {
	return installer{folder: filepath.Join(t.TempDir(), "temporal"), progress: func(string) {}, tick: time.Hour, download: fails, build: fails}
}

func TestADownloadedServerIsKeptAndNotFetchedAgain(t *testing.T) {
	i := newInstaller(t)
	i.download = provides("1.29.1")
	path, err := i.ensure(t.Context())
	require.NoError(t, err)
	require.NoError(t, works(t.Context(), path))

	i.download = fails
	again, err := i.ensure(t.Context())
	require.NoError(t, err)
	require.Equal(t, path, again)
	left, err := filepath.Glob(filepath.Join(i.folder, scratchPrefix+"*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestAFailedDownloadIsNotTriedAgainForADay(t *testing.T) {
	i := newInstaller(t)
	downloads := 0
	i.download = func(context.Context, string, string) error { downloads++; return errors.New("no way out") }
	for range 2 {
		_, err := i.ensure(t.Context())
		require.ErrorContains(t, err, "no way out")
	}
	require.Equal(t, 1, downloads)

	yesterday := time.Now().Add(-downloadRetry - time.Minute)
	require.NoError(t, os.Chtimes(i.failureNote(), yesterday, yesterday))
	i.build = provides("1.29.1")
	_, err := i.ensure(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, downloads)
}

func TestAMachineWithNeitherNetworkNorGoIsToldWhatToDo(t *testing.T) {
	_, err := newInstaller(t).ensure(t.Context())
	require.ErrorContains(t, err, "neither downloaded")
	require.ErrorContains(t, err, "install the temporal command line")
	require.ErrorContains(t, err, "TEMPORAL_ADDRESS")
}

func TestAProgramThatDoesNotWorkIsNotKept(t *testing.T) {
	i := newInstaller(t)
	i.build = provides("1.19.0")
	_, err := i.ensure(t.Context())
	require.ErrorContains(t, err, "1.19 is older than 1.25")
	found, err := exists(i.program())
	require.NoError(t, err)
	require.False(t, found)
}

func TestManyThatAskAtOnceInstallOnce(t *testing.T) {
	i := newInstaller(t)
	var builds atomic.Int32
	i.build = func(_ context.Context, _, program string) error {
		builds.Add(1)
		return script(program, "1.29.1")
	}
	var group sync.WaitGroup
	failures := make(chan error, 8)
	for range cap(failures) {
		group.Go(func() {
			_, err := i.ensure(t.Context())
			failures <- err
		})
	}
	group.Wait()
	for range cap(failures) {
		require.NoError(t, <-failures)
	}
	require.EqualValues(t, 1, builds.Load())
}

func TestAWaitingInstallerSaysSoAndGivesUpWithItsContext(t *testing.T) {
	holder := newInstaller(t)
	require.NoError(t, os.MkdirAll(holder.folder, 0o755))
	unlock, err := holder.lock(t.Context())
	require.NoError(t, err)
	defer unlock()

	ctx, cancel := context.WithCancel(t.Context())
	waiting := holder
	waiting.tick = time.Millisecond
	var said string
	waiting.progress = func(sentence string) { said = sentence; cancel() }
	_, err = waiting.ensure(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Contains(t, said, "Another process installs")
}

func TestAnInstallerThatWasKilledLeavesNothingForGood(t *testing.T) {
	i := newInstaller(t)
	left := filepath.Join(i.folder, scratchPrefix+"123")
	require.NoError(t, os.MkdirAll(left, 0o755))
	i.download = provides("1.29.1")
	_, err := i.ensure(t.Context())
	require.NoError(t, err)
	found, err := exists(left)
	require.NoError(t, err)
	require.False(t, found)
}

func TestGoBuildsTheServerIntoTheCacheAndProgressIsShown(t *testing.T) {
	bin := t.TempDir()
	fakeGo := "#!/bin/sh\n" +
		"[ \"$1\" = install ] || exit 2\n" +
		"printf '%s\\n' \"$@\" >\"" + bin + "/arguments\"\n" +
		"until [ -e '" + bin + "/goon' ]; do sleep 0.05; done\n" +
		"printf '#!/bin/sh\\necho \"temporal version 1 (Server 1.29.1, UI 2)\"\\n' >\"$GOBIN/temporal\"\n" +
		"chmod +x \"$GOBIN/temporal\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte(fakeGo), 0o755))
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))

	i := newInstaller(t)
	i.build, i.tick = build, 10*time.Millisecond
	var said []string
	i.progress = func(sentence string) {
		if said = append(said, sentence); strings.HasPrefix(sentence, "Building") {
			require.NoError(t, os.WriteFile(filepath.Join(bin, "goon"), nil, 0o600))
		}
	}
	path, err := i.ensure(t.Context())
	require.NoError(t, err)
	require.NoError(t, works(t.Context(), path))
	require.Contains(t, strings.Join(said, "\n"), "about three minutes")
	arguments, err := os.ReadFile(filepath.Join(bin, "arguments"))
	require.NoError(t, err)
	require.Contains(t, string(arguments), "github.com/temporalio/cli/cmd/temporal@"+Version)
}

func TestABuildEndsWithItsContextAndTakesItsChildrenWithIt(t *testing.T) {
	bin := t.TempDir()
	fakeGo := "#!/bin/sh\nsleep 1000 &\necho $! >'" + bin + "/pid.new' && mv '" + bin + "/pid.new' '" + bin + "/pid'\nwait\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte(fakeGo), 0o755))
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))

	i := newInstaller(t)
	i.build, i.tick = build, 10*time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	i.progress = func(string) {
		if started, _ := exists(filepath.Join(bin, "pid")); started {
			cancel()
		}
	}
	_, err := i.ensure(ctx)
	require.ErrorIs(t, err, context.Canceled)
	pid, err := readPID(filepath.Join(bin, "pid"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return gone(pid) }, 10*time.Second, 10*time.Millisecond)
}

func TestTheProgramOnThePathIsTakenOnlyIfItIsOfUse(t *testing.T) {
	bin, cache := t.TempDir(), t.TempDir()
	cached := filepath.Join(cache, "temporal", Version, "temporal")
	require.NoError(t, os.MkdirAll(filepath.Dir(cached), 0o755))
	require.NoError(t, script(cached, "1.29.1"))
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	onPath := filepath.Join(bin, "temporal")

	for _, c := range []struct{ server, want string }{
		{"1.30.2", onPath}, {"1.25.0", onPath}, {"2.0.0", onPath}, {"1.24.9", cached}, {"0.31.0", cached}, {"unknown", cached},
	} {
		t.Run(c.server, func(t *testing.T) {
			require.NoError(t, script(onPath, c.server))
			path, err := Binary(t.Context(), cache, nil)
			require.NoError(t, err)
			require.Equal(t, c.want, path)
		})
	}
}

func TestTheSDKHandsOverWhatItDownloadedWithoutStartingIt(t *testing.T) {
	scratch := t.TempDir()
	started := filepath.Join(scratch, "started")
	fetched := "#!/bin/sh\ntouch '" + started + "'\n"
	require.NoError(t, os.WriteFile(filepath.Join(scratch, "temporal-cli-"+Version), []byte(fetched), 0o755))
	program := filepath.Join(scratch, "temporal")
	require.NoError(t, download(t.Context(), scratch, program))
	require.FileExists(t, program)
	require.NoFileExists(t, started)
}
