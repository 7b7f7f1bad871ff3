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

func TestStopSendsSIGTERM(t *testing.T) {
	p := begin(t, open(t), runs("sleep", "1000"))
	exit := stops(t, p)
	require.True(t, exit.Interrupted)
	require.False(t, exit.Killed)
	require.Equal(t, "SIGTERM", exit.Signal)
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
	closed := make(chan error, 1)
	go func() { closed <- s.Close(ctx) }()
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

func TestStopKillsAGrandchildInItsOwnSession(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	p := begin(t, open(t), sh(`setsid sh -c 'trap "" TERM HUP; echo $$ > `+file+
		`; while :; do sleep 1; done' & exec sleep 1000`))
	grandchild := pidIn(t, file)
	stops(t, p)
	require.False(t, lives(t, grandchild))
	require.False(t, grandchild.Exists(), "an adopted grandchild is reaped, not left as a zombie")
}

func TestTheReaperKillsAllTreesOfAKilledAgent(t *testing.T) {
	dir := t.TempDir()
	child, grandchild := filepath.Join(dir, "child"), filepath.Join(dir, "grandchild")
	agent := startTestAgent(t, filepath.Join(dir, "state"), "sh", "-c",
		`echo $$ > `+child+`; setsid sh -c 'trap "" TERM HUP; echo $$ > `+grandchild+
			`; while :; do sleep 1; done' & while :; do sleep 1; done`)
	reaper := agent.reaper(t)
	ids := []tree.Identity{pidIn(t, child), pidIn(t, grandchild)}

	require.NoError(t, agent.Process.Kill())
	died := time.Now()
	for _, id := range ids {
		eventually(t, func() bool { return !lives(t, id) }, "a descendant is still running")
	}
	t.Logf("all descendants were gone %s after the agent's death", time.Since(died))
	eventually(t, func() bool { return !lives(t, reaper) }, "the reaper must exit")
}

func TestAKilledReaperIsReplacedByOneThatWatchesAllTrees(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "pid")
	agent := startTestAgent(t, filepath.Join(dir, "state"), "sh", "-c", `echo $$ > `+file+`; while :; do sleep 1; done`)
	first := agent.reaper(t)
	worker := pidIn(t, file)
	require.NoError(t, tree.Signal(first, syscall.SIGKILL))
	require.NotEqual(t, first, agent.reaper(t))
	require.NoError(t, agent.Process.Kill())
	eventually(t, func() bool { return !lives(t, worker) }, "the new reaper must kill the worker")
}

func TestOpenKillsWhatAnEarlierAgentLeftRunning(t *testing.T) {
	for _, records := range []bool{true, false} {
		t.Run(map[bool]string{true: "by its record", false: "by its cookie alone"}[records], func(t *testing.T) {
			dir := t.TempDir()
			state, child, grandchild := filepath.Join(dir, "state"), filepath.Join(dir, "child"), filepath.Join(dir,
				"grandchild")
			agent := startTestAgent(t, state, "sh", "-c",
				`echo $$ > `+child+`; setsid sh -c 'echo $$ > `+grandchild+
					`; while :; do sleep 1; done' & while :; do sleep 1; done`)
			reaper := agent.reaper(t)
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

			s := open(t, func(c *Config) { c.StateDir, c.HostID = state, "test-agent" })
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

func TestStopKillsATreeThatKeepsForking(t *testing.T) {
	hop := filepath.Join(t.TempDir(), "hop.sh")
	// Each process lives for 20 ms and leaves a successor in a session of its own, for at most 500 generations.
	require.NoError(t, os.WriteFile(hop, []byte("[ $1 -gt 0 ] || exit\nsleep 0.02\nsetsid sh \"$0\" $(($1 - 1)) &\n"),
		0o600))
	p := begin(t, open(t), sh(`for i in 1 2 3; do setsid sh `+hop+` 500 & done; exec sleep 1000`))
	eventually(t, func() bool { return len(cookieHolders(t, p.Info().Cookie)) > 3 }, "the forking processes must run")
	exit := stops(t, p)
	require.NotContains(t, exit.Reason, "survived")
	require.Empty(t, cookieHolders(t, p.Info().Cookie))
}

func TestKillEndsATreeThatGrows(t *testing.T) {
	bomb := filepath.Join(t.TempDir(), "bomb.sh")
	// Each process leaves up to 3 others behind in sessions of their own, 5 generations deep: bounded, but it grows as
	// fast as it can.
	require.NoError(t, os.WriteFile(bomb, []byte(
		"[ $1 -gt 0 ] && for i in 1 2 3; do setsid sh \"$0\" $(($1 - 1)) & done\nexec sleep 1000\n"), 0o600))
	p := begin(t, open(t), sh(`sh `+bomb+` 5 & exec sleep 1000`))
	eventually(t, func() bool { return len(cookieHolders(t, p.Info().Cookie)) > 10 }, "the tree must grow")
	p.Kill("it grows")
	require.True(t, ends(t, p).Killed)
	require.Empty(t, cookieHolders(t, p.Info().Cookie))
}

func TestStopKillsADescendantWithoutCookie(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	// The middle process keeps the descendant connected to the tree.
	p := begin(t, open(t), sh(`setsid sh -c 'env -i setsid sh -c "echo \$\$ > `+file+
		`; exec /bin/sleep 1000" & wait' & exec sleep 1000`))
	descendant := pidIn(t, file)
	stops(t, p)
	require.False(t, lives(t, descendant))
}

func TestStopKillsAnOrphanWithoutCookieThatWasSampled(t *testing.T) {
	dir := t.TempDir()
	file, leave := filepath.Join(dir, "pid"), filepath.Join(dir, "leave")
	p := begin(t, open(t), sh(`(env -i /usr/bin/setsid /bin/sh -c "echo \$\$ > `+file+
		`; exec /bin/sleep 1000" & while [ ! -e `+leave+` ]; do sleep 0.01; done) & exec sleep 1000`))
	descendant := pidIn(t, file)
	eventually(t, func() bool {
		_, err := p.Sample(t.Context())
		return err == nil && p.members.Has(descendant)
	}, "a sample must find it")
	require.NoError(t, os.WriteFile(leave, nil, 0o600))
	eventually(t, func() bool {
		entry, err := tree.ReadEntry(descendant.PID)
		return err == nil && entry.Parent == os.Getpid()
	}, "it must be an orphan")
	stops(t, p)
	require.False(t, lives(t, descendant))
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
	exit, err := p.Stop(t.Context(), waitTimeout)
	require.NoError(t, err)
	require.True(t, exit.Interrupted)
	require.FileExists(t, mark)
}

func TestConcurrentStopsUseTheShortestGrace(t *testing.T) {
	p := armed(t, open(t), sh(`trap "" TERM; echo armed; while :; do sleep 1; done`))
	first := make(chan Exit, 1)
	go func() {
		exit, _ := p.Stop(t.Context(), time.Hour)
		first <- exit
	}()
	began := time.Now()
	second, err := p.Stop(t.Context(), 100*time.Millisecond)
	require.NoError(t, err)
	require.True(t, second.Killed)
	require.False(t, second.Interrupted)
	require.Equal(t, "SIGKILL", second.Signal)
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
	require.Equal(t, second, <-first)
	third := stops(t, p)
	require.Equal(t, second, third, "Stop after the end returns the same exit")
}

func TestStopContinuesASuspendedProcess(t *testing.T) {
	p := armed(t, open(t), sh(`trap "exit 0" TERM; echo armed; while :; do sleep 0.01; done`))
	require.NoError(t, tree.SignalGroup(p.root.PID, syscall.SIGSTOP))
	exit, err := p.Stop(t.Context(), waitTimeout)
	require.NoError(t, err)
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
