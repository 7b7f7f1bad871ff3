package process

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// armed begins a program that says when it has set its trap for SIGTERM.
func armed(t *testing.T, s *Supervisor, sp spec.Spec) *Process {
	t.Helper()
	p := begin(t, s, sp)
	eventually(t, func() bool { return len(p.Logs()) > 0 }, "the trap must be set before TERM")
	return p
}

// A process in an uninterruptible wait does not exit when it is killed.
func TestAProcessThatCannotBeKilledIsGivenUp(t *testing.T) {
	s := open(t, func(c *Config) { c.killLimit = 100 * time.Millisecond })
	p, err := s.newKind(launch("p/0", 1, runs("sleep", "1000")))
	require.NoError(t, err)
	require.NoError(t, p.kind.start(t.Context()))
	awaitExit, release := p.awaitExit, make(chan struct{})
	p.awaitExit = func() { <-release; awaitExit() }
	s.supervise(p, s.live)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	closed := background(func() error { return s.Close(ctx) })
	select {
	case err := <-closed:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(30 * time.Second):
		t.Error("the supervisor waits for it")
	}
	close(release)
	ends(t, p)
	require.True(t, p.Exit().Killed)
	eventually(t, func() bool { return !p.root.Exists() }, "it is reaped when it exits at last")
}

// escapes returns a script that leaves a descendant behind: orphaned, in a session of its own, with no descriptor and
// no environment of its worker's. The descendant writes its PID to file.
func escapes(file string) string {
	return `(/usr/bin/setsid env -i /bin/sh -c 'exec <&- >&- 2>&- 3>&- 4>&-; echo $$ > ` + file +
		`; exec /bin/sleep 1000' &); exec sleep 1000`
}

func TestOpenKillsWhatAnEarlierAgentLeftRunning(t *testing.T) {
	for _, records := range []bool{true, false} {
		t.Run(map[bool]string{true: "by its record", false: "by its cookie alone"}[records], func(t *testing.T) {
			dir := t.TempDir()
			state, child, grandchild := filepath.Join(dir, "state"), filepath.Join(dir, "child"), filepath.Join(dir,
				"grandchild")
			script := `setsid sh -c 'echo $$ > ` + grandchild + `; while :; do sleep 1; done' & while :; do sleep 1; done`
			if records {
				script = escapes(grandchild)
			}
			agent, reaper := startTestAgent(t, state, `echo $$ > `+child+`; `+script)
			ids := []tree.Identity{pidIn(t, child), pidIn(t, grandchild)}
			pauses(t, reaper)
			require.NoError(t, agent.Process.Kill())
			require.NoError(t, errorOf(agent.Process.Wait()))
			require.NoError(t, tree.Signal(reaper, syscall.SIGKILL))
			for _, id := range ids {
				require.True(t, lives(t, id))
			}
			if !records {
				require.NoError(t, os.RemoveAll(filepath.Join(state, recordsName)))
			}

			s := open(t, withoutCgroups, func(c *Config) { c.StateDir = state })
			for _, id := range ids {
				require.False(t, lives(t, id), "Open returns after killing them")
			}
			entries, err := os.ReadDir(filepath.Join(state, recordsName))
			require.NoError(t, err)
			require.Empty(t, entries)
			require.Zero(t, s.Live())
		})
	}
}

func TestOpenSparesTheProcessesOfOtherAgents(t *testing.T) {
	other := begin(t, open(t), runs("sleep", "1000"))
	open(t) // the same host id with another state directory
	require.True(t, lives(t, other.root))
}

func TestOpenRemovesAnUnreadableRecord(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, recordsName, "p%2F0.1.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
	require.NoError(t, os.WriteFile(name, []byte(`{"worker":`), 0o600))
	open(t, func(c *Config) { c.StateDir = dir })
	require.NoFileExists(t, name)
}

func TestOpenRemovesOnlyADirectoryThatAnAgentMadeForASocket(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir, foreign := t.TempDir(), t.TempDir()
	state, err := openStateDir(dir, "test")
	require.NoError(t, err)
	own, err := os.MkdirTemp("", socketDirPrefix)
	require.NoError(t, err)
	for i, socketDir := range []string{own, foreign, own + "/.."} {
		require.NoError(t, state.writeRecord(record{Worker: "p/0", Incarnation: int64(i),
			Key: tree.Key{Cookie: fmt.Sprint("c", i)}, SocketDir: socketDir}))
	}
	state.close()
	open(t, func(c *Config) { c.StateDir = dir })
	require.NoDirExists(t, own)
	require.DirExists(t, foreign)
	require.DirExists(t, os.TempDir())
}

// Without its record, the process of an agent that was killed might be found by nobody.
func TestOpenKeepsARecordThatCannotBeRead(t *testing.T) {
	state, err := openStateDir(t.TempDir(), "test")
	require.NoError(t, err)
	defer state.close()
	name := state.recordName("p/0", 1)
	require.NoError(t, os.Symlink(name, name)) // reading it fails also for root
	require.ErrorContains(t, errorOf(state.sweep("test", slog.New(slog.DiscardHandler), nil)), name)
	require.NoError(t, errorOf(os.Lstat(name)))
}

func TestOpenKillsNobodyByANumberOfAnotherBootOrPIDNamespace(t *testing.T) {
	for _, space := range []string{"", "an earlier boot", tree.NumberSpace() + "0"} {
		dir := t.TempDir()
		state, err := openStateDir(dir, "test")
		require.NoError(t, err)
		bystander := exec.Command("sleep", "1000")
		bystander.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		require.NoError(t, tree.StartChild(bystander))
		defer func() {
			_ = bystander.Process.Kill()
			_ = tree.WaitChild(bystander)
		}()
		id, found := tree.Identify(bystander.Process.Pid)
		require.True(t, found)
		require.NoError(t, state.writeRecord(record{Worker: "p/0", Incarnation: 1, Key: tree.Key{Root: id, Cookie: "c"},
			Space: space}))
		state.close()
		open(t, func(c *Config) { c.StateDir = dir })
		require.True(t, lives(t, id), space)
		require.NoFileExists(t, state.recordName("p/0", 1))
	}
}

func TestTheReaperIgnoresSignals(t *testing.T) {
	s := open(t)
	reaper, found := tree.Identify(s.reaper.PID())
	require.True(t, found)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		require.NoError(t, tree.Signal(reaper, sig))
	}
	p := begin(t, s, runs("sleep", "1000"))
	stops(t, p)
	require.True(t, lives(t, reaper))
}

func TestATreeThatKeepsForkingEnds(t *testing.T) {
	for name, c := range map[string]struct {
		script string // of each process, which is in a session of its own; $1 generations are left
		leaves int
		end    func(*Process)
	}{
		// Each process lives for 20 ms and leaves a successor.
		"stopped": {"sleep 0.02\nsetsid sh \"$0\" $(($1 - 1)) &\n", 500, func(p *Process) { p.requestStop(waitTimeout) }},
		// Each process leaves up to 3 others behind: bounded, but it grows as fast as it can.
		"killed": {"for i in 1 2 3; do setsid sh \"$0\" $(($1 - 1)) & done\nexec sleep 1000\n", 5,
			func(p *Process) { p.Kill("it grows") }},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "fork.sh")
			require.NoError(t, os.WriteFile(file, []byte("[ $1 -gt 0 ] || exec sleep 1000\n"+c.script), 0o600))
			script := fmt.Sprintf("for i in 1 2 3; do setsid sh %s %d & done; exec sleep 1000", file, c.leaves)
			p := begin(t, open(t, withoutCgroups), sh(script))
			eventually(t, func() bool { return len(cookieHolders(t, p.Info().Cookie)) > 5 }, "the tree must grow")
			c.end(p)
			require.NotContains(t, ends(t, p).Reason, "survived")
			require.Empty(t, cookieHolders(t, p.Info().Cookie))
		})
	}
}

func TestAStrangerThatHoldsThePipesDoesNotBlockTheEnd(t *testing.T) {
	leave := filepath.Join(t.TempDir(), "leave")
	p := begin(t, open(t), sh(once(leave)+`exit 3`))
	held, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", p.Info().PID), os.O_WRONLY, 0)
	require.NoError(t, err)
	defer held.Close()
	require.NoError(t, os.WriteFile(leave, nil, 0o600))
	require.Equal(t, 3, ends(t, p).Code)
}

func TestDeadOrphansOfALiveTreeAreReaped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	begin(t, open(t), sh(`(setsid sh -c 'echo $$ > `+file+`; until [ -e `+file+`.seen ]; do sleep 0.01; done' &);
		exec sleep 1000`))
	orphan := pidIn(t, file)
	require.NoError(t, os.WriteFile(file+".seen", nil, 0o600))
	eventually(t, func() bool { return !orphan.Exists() }, "a dead orphan must not stay a zombie")
}

func TestChildrenOfOtherCodeAreNotReaped(t *testing.T) {
	begin(t, open(t), runs("sleep", "1000"))
	cmd := exec.Command("sh", "-c", "exit 7")
	require.NoError(t, cmd.Start())
	id, found := tree.Identify(cmd.Process.Pid)
	require.True(t, found)
	eventually(t, func() bool { return id.Exists() && !lives(t, id) }, "the child must be dead")
	noise := exec.Command("true") // its death wakes the reaping of orphans
	require.NoError(t, noise.Run())
	var failed *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &failed)
	require.Equal(t, 7, failed.ExitCode())
}

func TestStopGivesTheWholeGroupItsGrace(t *testing.T) {
	dir := t.TempDir()
	file, mark := filepath.Join(dir, "pid"), filepath.Join(dir, "done")
	p := begin(t, open(t), sh(`sh -c 'trap "sleep 0.2; touch `+mark+`; exit" TERM; echo $$ > `+file+
		`; while :; do sleep 0.01; done' & sleep 1000; wait`))
	pidIn(t, file)
	require.True(t, stops(t, p).Interrupted)
	require.FileExists(t, mark)
}

func TestConcurrentStopsUseTheShortestGrace(t *testing.T) {
	p := armed(t, open(t), sh(`trap "" TERM; echo armed; while :; do sleep 1; done`))
	first := background(func() Exit {
		exit, _ := p.Stop(t.Context(), time.Hour)
		return exit
	})
	began := time.Now()
	second, err := p.Stop(t.Context(), 100*time.Millisecond)
	require.NoError(t, err)
	require.True(t, second.Killed)
	require.False(t, second.Interrupted)
	require.Equal(t, "SIGKILL", second.Signal)
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
	require.Equal(t, second, await(t, first))
	require.Equal(t, second, stops(t, p), "Stop after the end returns the same exit")
}

func TestStopContinuesASuspendedProcess(t *testing.T) {
	p := armed(t, open(t), sh(`trap "exit 0" TERM; echo armed; while :; do sleep 0.01; done`))
	require.NoError(t, tree.SignalGroup(p.root.PID, syscall.SIGSTOP))
	exit := stops(t, p)
	require.True(t, exit.Interrupted)
	require.Zero(t, exit.Code)
}

func TestCloseKillsWhenItsContextEnds(t *testing.T) {
	s, err := Open(t.Context(), Config{StateDir: t.TempDir(), HostID: "test"})
	require.NoError(t, err)
	sp := sh(`trap "" TERM; echo armed; while :; do sleep 1; done`)
	sp.Pool.StopGrace = spec.Duration(time.Hour)
	p := armed(t, s, sp)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Close(ctx), context.DeadlineExceeded)
	require.True(t, ends(t, p).Killed)
	require.NoError(t, s.Close(t.Context()), "closing again is fine")
	require.ErrorIs(t, errorOf(s.Start(t.Context(), launch("p/0", 2, sp))), ErrUnavailable)
}
