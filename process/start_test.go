package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/spec"
)

// launch is a start whose default time-outs no machine reaches.
func launch(worker string, incarnation int64, sp spec.Spec) Launch {
	if def := spec.Default(); sp.Start.Timeout == def.Start.Timeout && sp.Health.Timeout == def.Health.Timeout {
		sp.Start.Timeout, sp.Health.Timeout = spec.Duration(waitTimeout), spec.Duration(waitTimeout)
	}
	return Launch{Worker: worker, Incarnation: incarnation, Spec: sp}
}

// slow is a program that becomes ready when the file exists.
func slow(file string) spec.Spec {
	sp := runs("sleep", "1000")
	sp.Health.Command = []string{"test", "-e", file}
	return sp
}

func TestNothingIsLeftOfACancelledStart(t *testing.T) {
	s := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	failed := background(func() error { return errorOf(s.Start(ctx, launch("p/0", 1, slow("/nowhere")))) })
	eventually(t, func() bool { return s.Live() == 1 }, "the process must be starting")
	p := s.List()[0]
	require.ErrorIs(t, errorOf(s.Start(t.Context(), launch("p/0", 1, slow("/nowhere")))), ErrSuperseded, "it starts")
	cancel()
	err := await(t, failed)
	require.ErrorIs(t, err, ErrStartFailed)
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, lives(t, p.root))
	require.True(t, p.Exit().Interrupted)
}

func TestANewerIncarnationSupersedesAStartInProgress(t *testing.T) {
	s := open(t)
	failed := background(func() error { return errorOf(s.Start(t.Context(), launch("p/0", 1, slow("/nowhere")))) })
	eventually(t, func() bool { return s.Live() == 1 }, "the process must be starting")
	newer := starts(t, s, launch("p/0", 2, runs("sleep", "1000")))
	require.ErrorIs(t, await(t, failed), ErrSuperseded)
	require.Equal(t, []*Process{newer}, s.List())
}

func TestAfterEndCallsEachFunctionOnce(t *testing.T) {
	s := open(t)
	p := begin(t, s, runs("sleep", "1000"))
	called := make(chan error, 2)
	callback := func() {
		_, found := s.Get("p/0", 1)
		if !found || p.Exit().Reason == "" {
			called <- errors.New("the exit is not set yet")
		}
		called <- nil
	}
	p.AfterEnd(callback)
	p.Kill("the test says so")
	require.NoError(t, <-called)
	p.AfterEnd(callback) // after the end
	require.NoError(t, <-called)
	<-p.Done()
	require.Empty(t, called)
}

func TestAnExitRecordHasTheExitAndNoConnection(t *testing.T) {
	s := open(t)
	sp := python(t, "@tempool.method", "def one(): return 1")
	p := begin(t, s, sp)
	require.NoError(t, errorOf(p.FreshSample(t.Context())))
	require.JSONEq(t, "1", call(t, p, "one", "null"))
	require.False(t, p.Stopping())
	p.Kill("the test is done")
	require.True(t, p.Stopping())
	was := ends(t, p)
	old, found := s.Get("p/0", 1)
	require.True(t, found)
	require.NotSame(t, p, old)
	require.Nil(t, old.Conn())
	require.Equal(t, was.Reason, old.Exit().Reason)
	require.Equal(t, was.Exit, old.Exit().Exit)
	stopped, err := old.Stop(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, was.Reason, stopped.Reason)
	require.ErrorContains(t, old.Probe(t.Context()), "the process has ended")
	require.ErrorIs(t, errorOf(old.ApplyLimits(0, 0)), ErrUnavailable)
	require.Error(t, old.CollectGarbage(t.Context()))
	require.NotZero(t, old.LatestSample())
	require.Equal(t, p.LatestSample(), old.LatestSample())
}

func TestAProgramThatExitsBeforeItIsReadyFailsTheStartWithItsOutput(t *testing.T) {
	s := open(t)
	sp := sh("echo starting; echo 'no module named x' >&2; exit 3")
	sp.Health.Command = []string{"false"}
	startFails(t, s, launch("p/0", 1, sp), "start p/0 incarnation 1: ", "exited with code 3", "no module named x")
	p, found := s.Get("p/0", 1)
	require.True(t, found)
	require.True(t, p.Exit().Failed())
	require.Contains(t, p.Exit().Reason, "starting")
}

func TestAProgramThatIsNotReadyInTimeFailsTheStart(t *testing.T) {
	s := open(t)
	sp := slow("/nowhere")
	sp.Pool.Command = []string{"sh", "-c", `trap "" TERM; echo still loading; while :; do sleep 1; done`}
	p, found := s.Get("p/0", startsTooLate(t, s, sp, "still loading"))
	require.True(t, found)
	require.False(t, p.Exit().Killed, "a program that hangs at start failed")
	require.NotEmpty(t, p.Exit().Error)
}

func TestInvalidLaunchesAreRejected(t *testing.T) {
	s := open(t)
	for text, change := range map[string]func(*Launch){
		`the program "no-such-program" is not in PATH`: func(l *Launch) {
			l.Spec.Pool.Command = []string{"no-such-program"}
		},
		`the program "/etc/passwd" cannot be run`: func(l *Launch) {
			l.Spec.Pool.Command = []string{"/etc/passwd"}
		},
		`pool.dir "/no/such/folder" is not a directory of this host`: func(l *Launch) { l.Spec.Pool.Dir = "/no/such/folder" },
		`pool.user "no-such-user" is not a user of this host`:        func(l *Launch) { l.Spec.Pool.User = "no-such-user" },
		`pool.group "no-such-group" is not a group of this host`:     func(l *Launch) { l.Spec.Pool.Group = "no-such-group" },
		`pool.umask "9" is not octal text`:                           func(l *Launch) { l.Spec.Pool.Umask = "9" },
		`names no command`:                                           func(l *Launch) { l.Spec.Pool.Command = nil },
		`an incarnation of 1 or more`:                                func(l *Launch) { l.Incarnation = 0 },
		`has no start.timeout`:                                       func(l *Launch) { l.Spec.Start.Timeout = 0 },
	} {
		l := launch("p/0", 1, runs("sleep", "1000"))
		change(&l)
		require.ErrorContains(t, errorOf(s.Start(t.Context(), l)), text)
	}
	entries, err := os.ReadDir(filepath.Join(s.state.path, recordsName))
	require.NoError(t, err)
	require.Empty(t, entries)
	starts(t, s, launch("p/0", 1, runs("sleep", "1000")), "an incarnation that never had a process may be started again")
}

func TestConcurrentStartsAreBounded(t *testing.T) {
	s := open(t)
	dir := t.TempDir()
	sp := runs("sleep", "1000")
	sp.Start.Concurrency = 3
	// The probe that makes a worker ready counts the starts in progress: those that began and have not been ready.
	sp.Pool.Command = []string{"sh", "-c", `touch ` + dir + `/began-${TEMPOOL_WORKER#p/}; exec sleep 1000`}
	sp.Health.Command = []string{"sh", "-c", `test -e ` + dir + `/began-${TEMPOOL_WORKER#p/} || exit 1; sleep 0.02
		echo $(ls ` + dir + ` | grep -c began) $(ls ` + dir + ` | grep -c ready) >> ` + dir + `/log; touch ` + dir + `/ready-${TEMPOOL_WORKER#p/}`}
	var all sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		all.Go(func() { _, errs[i] = s.Start(t.Context(), launch("p/"+strconv.Itoa(i), 1, sp)) })
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, 20, s.Live())
	for line := range strings.Lines(textOf(t, filepath.Join(dir, "log"))) {
		var began, ready int
		require.NoError(t, errorOf(fmt.Sscan(line, &began, &ready)))
		require.LessOrEqual(t, began-ready, 3)
	}
}

func TestTheProgramDoesNotInheritTheAgentsEnvironment(t *testing.T) {
	t.Setenv("TEMPOOL_TEST_SECRET", "s3cret")
	t.Setenv("TEMPOOL_TEST_PRIVATE", "not for workers")
	file := filepath.Join(t.TempDir(), "env")
	sp := sh(`env > ` + file + `.new; mv ` + file + `.new ` + file + `; exec sleep 1000`)
	sp.Pool.Env = map[string]string{"LANG": "C", EnvWorker: "a lie"}
	sp.Pool.EnvFrom = []string{"TEMPOOL_TEST_SECRET", "TEMPOOL_TEST_ABSENT"}
	p := begin(t, open(t), sp)
	eventually(t, func() bool { _, err := os.Stat(file); return err == nil }, "the program must write its environment")
	data := textOf(t, file)
	got := make(map[string]string)
	for line := range strings.Lines(data) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		got[name] = value
	}
	for _, shell := range []string{"PWD", "OLDPWD", "SHLVL", "_"} {
		delete(got, shell)
	}
	require.Equal(t, map[string]string{
		"PATH": os.Getenv("PATH"), "LANG": "C", "TEMPOOL_TEST_SECRET": "s3cret",
		EnvWorker: "p/0", EnvIncarnation: p.Info().Cookie,
		EnvPort: strconv.Itoa(p.plan.address.port), EnvSocket: p.plan.address.socket,
	}, got)
}

func TestEnvironment(t *testing.T) {
	lookup := func(name string) (string, bool) {
		value, found := map[string]string{"PATH": "/agent/bin", "HOME": "/home/agent", "A": "agent"}[name]
		return value, found
	}
	file, bad := filepath.Join(t.TempDir(), "env"), filepath.Join(t.TempDir(), "bad")
	require.NoError(t, os.WriteFile(file, []byte("# of a\n\nexport A=file\r\nB = two words\nC=\"a\\nb\"\nD='\\n'\n"+
		"HOME=/file\nPATH=/file/bin\n"), 0o600))
	require.NoError(t, os.WriteFile(bad, []byte("A=1\ns3cret\n"), 0o600))
	for _, c := range []struct {
		name string
		pool spec.Pool
		ours map[string]string
		want []string
		fail string
	}{
		{name: "nothing but PATH", want: []string{"PATH=/agent/bin"}},
		{name: "the spec's PATH wins", pool: spec.Pool{Env: map[string]string{"PATH": "/x"}}, want: []string{"PATH=/x"}},
		{
			name: "the spec wins over env_from, ours over both",
			pool: spec.Pool{Env: map[string]string{"A": "spec", "B": "spec"}, EnvFrom: []string{"A", "HOME", "NONE"}},
			ours: map[string]string{"B": "ours"},
			want: []string{"A=spec", "B=ours", "HOME=/home/agent", "PATH=/agent/bin"},
		},
		{
			name: "env_from and the spec win over the file",
			pool: spec.Pool{EnvFile: file, EnvFrom: []string{"HOME"}, Env: map[string]string{"A": "spec"}},
			want: []string{"A=spec", "B=two words", "C=a\nb", "D=\\n", "HOME=/home/agent", "PATH=/file/bin"},
		},
		{name: "a container's PATH is its image's", pool: spec.Pool{Kind: spec.KindContainer}, want: []string{}},
		{name: "no file", pool: spec.Pool{EnvFile: file + ".none"}, fail: "read pool.env_file: open " + file + ".none"},
		{name: "a bad file", pool: spec.Pool{EnvFile: bad}, fail: "pool.env_file " + bad + ": line 2 has no NAME=VALUE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := environment(c.pool, c.ours, lookup)
			if require.Equal(t, c.want, got); c.fail != "" {
				require.ErrorContains(t, err, c.fail)
				require.NotContains(t, err.Error(), "s3cret")
			}
		})
	}
}

func TestTheProgramRunsWithItsDirectoryUmaskAndCredentials(t *testing.T) {
	need.Root(t) // only it can start a program as another user
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o777))
	for parent := filepath.Dir(dir); parent != "/" && parent != os.TempDir(); parent = filepath.Dir(parent) {
		require.NoError(t, os.Chmod(parent, 0o755))
	}
	sp := sh(`touch made; id -u > uid; id -g > gid; id -G > groups; pwd > pwd; touch done; exec sleep 1000`)
	sp.Pool.Dir, sp.Pool.Umask, sp.Pool.User = dir, "027", "nobody"
	p := begin(t, open(t), sp)
	eventually(t, func() bool { _, err := os.Stat(filepath.Join(dir, "done")); return err == nil },
		"the program must be done")
	info, err := os.Stat(filepath.Join(dir, "made"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm())
	who, err := lookUpCredentials("nobody", "")
	require.NoError(t, err)
	for file, want := range map[string]string{"uid": strconv.Itoa(int(who.UID)), "gid": strconv.Itoa(int(who.GID)),
		"groups": strconv.Itoa(int(who.GID)), "pwd": dir} {
		require.Equal(t, want, strings.TrimSpace(textOf(t, filepath.Join(dir, file))), file)
	}
	own := filepath.Join(dir, "agent")
	require.NoError(t, os.WriteFile(own, nil, 0o666))
	info, err = os.Stat(own)
	require.NoError(t, err)
	require.NotEqual(t, os.FileMode(0o640), info.Mode().Perm(), "the agent's own umask has not changed")
	stops(t, p)
}

func TestFindProgramUsesTheProgramsPathAndDirectory(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	program := filepath.Join(dir, "bin", "greet")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755))
	for _, c := range []struct {
		name, dir, path, want string
	}{
		{"greet", "", filepath.Join(dir, "bin"), program},
		{"greet", dir, "/nowhere:bin", program},
		{"bin/greet", dir, "", "bin/greet"},
		{program, "/", "", program},
	} {
		got, err := findProgram(c.name, c.dir, []string{"PATH=" + c.path})
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	for _, name := range []string{"", "greet", "bin/none", "bin"} {
		require.Error(t, errorOf(findProgram(name, dir, []string{"PATH=/nowhere"})), name)
	}
}

func TestTheStateDirectoryIsLocked(t *testing.T) {
	s := open(t)
	_, err := Open(t.Context(), Config{StateDir: s.state.path, HostID: "other"})
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, fmt.Sprintf("is in use by process %d on ", os.Getpid()))
	require.ErrorContains(t, err, `(host id "test"`)
}

func TestOpenRejectsAConfigurationWithoutStateDirOrHostID(t *testing.T) {
	for _, config := range []Config{{HostID: "h"}, {StateDir: t.TempDir()}, {StateDir: t.TempDir(), HostID: "a\nb"}} {
		require.ErrorContains(t, errorOf(Open(t.Context(), config)), "a supervisor needs a state directory and a host id")
	}
}

func TestANewerIncarnationSparesThoseToKeep(t *testing.T) {
	s := open(t)
	first := begin(t, s, runs("sleep", "1000"))
	after := func(kept *Process) *Process {
		l := launch("p/0", kept.Incarnation()+1, runs("sleep", "1000"))
		l.Keep = []int64{kept.Incarnation()}
		p := starts(t, s, l)
		return p
	}
	second := after(first)
	require.Equal(t, []*Process{first, second}, s.List())
	third := after(second)
	require.Equal(t, "killed: superseded by incarnation 3", ends(t, first).Reason, "only those it is to keep")
	require.Equal(t, []*Process{second, third}, s.List())
}
