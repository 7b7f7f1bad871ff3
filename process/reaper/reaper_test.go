package reaper

import (
	"log/slog"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process/tree"
)

const timeout = 2 * time.Minute // only a failing test waits so long

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestReadCommandsReturnsTheTreesStillWatched(t *testing.T) {
	for name, c := range map[string]struct {
		commands string
		want     []string
	}{
		"watched": {`{"op":"watch","key":{"cookie":"a"}}` + "\n" + `{"op":"watch","key":{"cookie":"b"}}` + "\n",
			[]string{"a", "b"}},
		"forgotten":     {`{"op":"watch","key":{"cookie":"a"}}` + "\n" + `{"op":"forget","key":{"cookie":"a"}}` + "\n", nil},
		"dismissed":     {`{"op":"watch","key":{"cookie":"a"}}` + "\n" + `{"op":"dismiss"}` + "\n", nil},
		"truncated end": {`{"op":"watch","key":{"cookie":"a"}}` + "\n" + `{"op":"forget","key":{"co`, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			var cookies []string
			for cookie := range readCommands(strings.NewReader(c.commands)) {
				cookies = append(cookies, cookie)
			}
			require.ElementsMatch(t, c.want, cookies)
		})
	}
}

func TestAReaperWhoseRestartEndsAfterCloseExits(t *testing.T) {
	c, err := Start(t.Context(), "test", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	c.Watch(tree.Key{Cookie: "reaper-test"})
	c.Close()
	late, err := c.start(t.Context())
	require.NoError(t, err)
	kill := time.AfterFunc(timeout, func() { _ = late.Process.Kill() })
	defer kill.Stop()
	require.NoError(t, tree.WaitChild(late))
}

// sleeper is a process to watch, which is killed with the test, and what its end delivers.
func sleeper(t *testing.T) (tree.Identity, <-chan error) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{tree.CookieEnv + "=reaper-test"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, tree.StartChild(cmd))
	id, found := tree.Identify(cmd.Process.Pid)
	require.True(t, found)
	waited := make(chan error, 1)
	ended := sleep.Done(func() { waited <- tree.WaitChild(cmd) })
	t.Cleanup(func() {
		_ = tree.Signal(id, syscall.SIGKILL)
		<-ended
	})
	return id, waited
}

func TestAReaperThatDoesNotReadIsReplacedByOneThatWatchesAllTrees(t *testing.T) {
	id, waited := sleeper(t)
	c, err := Start(t.Context(), "test", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	c.mu.Lock()
	first := c.cmd
	require.NoError(t, c.commands.Close()) // every write to the pipe fails
	c.mu.Unlock()
	c.Watch(tree.Key{Root: id, Cookie: "reaper-test"})
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.cmd != nil && c.cmd != first
	}, timeout, time.Millisecond, "no second reaper")

	c.mu.Lock()
	require.NoError(t, c.commands.Close()) // what the death of the agent does
	c.mu.Unlock()
	select {
	case err := <-waited:
		require.ErrorContains(t, err, "killed")
	case <-time.After(timeout):
		require.Fail(t, "the second reaper did not kill the tree")
	}
	c.Close()
}

// What a keeper holds is not for a reaper to kill whose pipe the keeper does not have.
func TestAReaperThatIsKilledDuringAHandOverIsNotReplaced(t *testing.T) {
	id, waited := sleeper(t)
	c, err := Start(t.Context(), "test", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	c.Watch(tree.Key{Root: id, Cookie: "reaper-test"})
	first := c.PID()
	pipe, err := c.Pipe()
	require.NoError(t, err)
	defer pipe.Close()
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		now := c.PID()
		return sleep.Ended(c.done) || now != 0 && now != first
	}, timeout, time.Millisecond)
	c.Leave()
	<-c.done
	require.Empty(t, waited, "the process was killed")
	require.True(t, id.Exists())
}
