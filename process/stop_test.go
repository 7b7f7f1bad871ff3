package process

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAProgramThatHeedsTermIsInterrupted(t *testing.T) {
	p := begin(t, open(t), runs("sleep", "1000"))
	exit, err := p.Stop(t.Context(), 0)
	require.NoError(t, err)
	require.True(t, exit.Interrupted)
	require.False(t, exit.Killed)
	require.Equal(t, "SIGTERM", exit.Signal)
}

func TestAProgramThatIgnoresTermIsKilledAfterItsGrace(t *testing.T) {
	p := begin(t, open(t), sh(`trap "" TERM; echo armed; while :; do sleep 1; done`))
	eventually(t, func() bool { return len(p.Logs()) > 0 }, "the trap must be set before TERM")
	began := time.Now()
	exit, err := p.Stop(t.Context(), 200*time.Millisecond)
	require.NoError(t, err)
	require.True(t, exit.Killed)
	require.False(t, exit.Interrupted)
	require.Equal(t, "SIGKILL", exit.Signal)
	require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
}

func TestAGrandchildInItsOwnSessionEndsWithStop(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	p := begin(t, open(t), sh(`setsid sh -c 'trap "" TERM HUP; echo $$ > `+file+`; while :; do sleep 1; done' & exec sleep 1000`))
	grandchild := pidIn(t, file)
	_, err := p.Stop(t.Context(), 0)
	require.NoError(t, err)
	require.False(t, lives(t, grandchild))
	require.False(t, exists(grandchild), "an adopted grandchild is reaped, not left as a zombie")
}

func TestNothingOutlivesAnAgentThatIsKilled(t *testing.T) {
	dir := t.TempDir()
	child, grandchild := filepath.Join(dir, "child"), filepath.Join(dir, "grandchild")
	agent, reaper := startTestAgent(t, filepath.Join(dir, "state"), "sh", "-c",
		`echo $$ > `+child+`; setsid sh -c 'trap "" TERM HUP; echo $$ > `+grandchild+`; while :; do sleep 1; done' & while :; do sleep 1; done`)
	ids := []identity{pidIn(t, child), pidIn(t, grandchild)}
	reaperID, found := identify(reaper)
	require.True(t, found)

	require.NoError(t, agent.Process.Signal(syscall.SIGKILL))
	began := time.Now()
	for _, id := range ids {
		require.Eventually(t, func() bool { return !lives(t, id) }, 2*time.Second, time.Millisecond)
	}
	t.Logf("all descendants were gone %s after the agent's death", time.Since(began))
	eventually(t, func() bool { return !lives(t, reaperID) }, "the reaper must not linger")
}
