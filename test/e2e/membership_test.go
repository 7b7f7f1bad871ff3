package e2e

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// hostStatus waits for a status of the host's workflow for which holds is true, and returns it.
func (env *testEnv) hostStatus(hostID, what string, holds func(api.HostStatus) bool) api.HostStatus {
	env.t.Helper()
	return until(env, what,
		func(ctx context.Context) (api.HostStatus, error) { return env.client.HostStatus(ctx, hostID) }, holds)
}

func up(s api.HostStatus) bool { return s.State == api.HostUp }

// One host id has five agents, one after the other: a killed one is followed at once on its state folder, and after its
// loss elsewhere; one on a copy of the state folder ends the one before; and one that was frozen and succeeded ends
// when it wakes.
func TestAnAgentThatIsKilledOrCopiedOrFrozenIsFollowedByOne(t *testing.T) {
	env := newEnv(t)
	first := env.startAgent("shared")
	env.hostStatus("shared", "the first agent joined", up)
	other := env.startAgent("shared", "--state-dir", filepath.Join(env.dir, "other"))
	other.refused()
	first.kill()
	again := env.startAgent("shared")
	status := env.hostStatus("shared", "it is followed at once",
		func(s api.HostStatus) bool { return up(s) && s.Epoch == 2 })
	again.kill()
	elsewhere := filepath.Join(env.dir, "elsewhere")
	third := env.startAgent("shared", "--state-dir", elsewhere)
	moved := env.hostStatus("shared", "it is followed elsewhere",
		func(s api.HostStatus) bool { return up(s) && s.Epoch == 3 })
	require.GreaterOrEqual(t, moved.Since.Sub(status.Since), api.HostHeartbeatTimeout-time.Second)

	id, err := os.ReadFile(filepath.Join(elsewhere, "id"))
	require.NoError(t, err)
	copied := filepath.Join(env.dir, "copy")
	require.NoError(t, os.MkdirAll(copied, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(copied, "id"), id, 0o600))
	fourth := env.startAgent("shared", "--state-dir", copied)
	env.hostStatus("shared", "the copy took over", func(s api.HostStatus) bool { return up(s) && s.Epoch == 4 })
	third.refused()

	fourth.freeze()
	env.startAgent("shared", "--state-dir", filepath.Join(env.dir, "last"))
	env.hostStatus("shared", "another agent took over", func(s api.HostStatus) bool { return up(s) && s.Epoch == 5 })
	require.NoError(t, fourth.cmd.Process.Signal(syscall.SIGCONT))
	fourth.refused()
	require.Equal(t, int64(5), env.hostStatus("shared", "the successor stays", up).Epoch)
}

// refused waits until the agent ends, because another one has its host id.
func (a *agent) refused() {
	a.t.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); _ = a.cmd.Wait() }()
	select {
	case <-ended:
		require.Equal(a.t, 1, a.cmd.ProcessState.ExitCode())
	case <-time.After(waitTimeout):
		require.FailNow(a.t, "the agent continues beside another one with its host id")
	}
}
