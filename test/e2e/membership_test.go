package e2e

import (
	"flag"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// hostStatus waits for a status of the host's workflow for which holds is true, and returns it.
func (env *testEnv) hostStatus(hostID, what string, holds func(api.HostStatus) bool) (s api.HostStatus) {
	env.t.Helper()
	require.Eventually(env.t, func() bool {
		var err error
		s, err = env.client.HostStatus(env.t.Context(), hostID)
		return err == nil && holds(s)
	}, waitTimeout, 50*time.Millisecond, what)
	return s
}

func up(s api.HostStatus) bool { return s.State == api.HostUp }

var twins = flag.Int("twins", 2, "how often two agents start at once with one host id")

func TestOfTwoAgentsStartedAtOnceWithOneHostIDOneServes(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	for try := range *twins {
		dirs := []string{filepath.Join(env.dir, "a"), filepath.Join(env.dir, "b")}
		agents := []*agent{env.startAgent("shared", "--state-dir", dirs[0]), env.startAgent("shared", "--state-dir", dirs[1])}
		ended := make(chan int, 2)
		for i, a := range agents {
			go func() { _ = a.cmd.Wait(); ended <- i }()
		}
		loser := <-ended
		require.Equal(t, 1, agents[loser].cmd.ProcessState.ExitCode(), "try %d", try)
		log, err := os.ReadFile(agents[loser].log)
		require.NoError(t, err)
		require.Contains(t, string(log), `host id "shared" is held by agent`)
		pool := env.startPool(echoSpec("twins", 2))
		status := env.hostStatus("shared", "one agent holds the host", up)
		require.Equal(t, int64(try+1), status.Epoch)
		view, err := pool.Workers(t.Context())
		require.NoError(t, err)
		for _, worker := range view.Workers {
			require.Empty(t, worker.RestartsByReason)
			require.Empty(t, worker.EndedByOutcome)
		}
		_, err = pool.Stop(t.Context(), "the try is over")
		require.NoError(t, err)
		env.waitEnd(pool)
		require.NoError(t, agents[1-loser].cmd.Process.Signal(os.Interrupt))
		require.Equal(t, 1-loser, <-ended)
		require.NoError(t, os.Truncate(agents[loser].log, 0))
	}
}

func TestAnAgentThatIsKilledIsFollowedAtOnceOnItsStateFolderAndAfterItsLossElsewhere(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	first := env.startAgent("shared")
	env.hostStatus("shared", "the first agent joined", up)
	first.kill()
	again := env.startAgent("shared")
	status := env.hostStatus("shared", "it is followed at once",
		func(s api.HostStatus) bool { return up(s) && s.Epoch == 2 })
	again.kill()
	env.startAgent("shared", "--state-dir", filepath.Join(env.dir, "elsewhere"))
	moved := env.hostStatus("shared", "it is followed elsewhere",
		func(s api.HostStatus) bool { return up(s) && s.Epoch == 3 })
	require.GreaterOrEqual(t, moved.Since.Sub(status.Since), api.HostHeartbeatTimeout-time.Second)
}

func TestAnAgentOnACopyOfTheStateFolderEndsTheOneBefore(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	first := env.startAgent("shared")
	env.hostStatus("shared", "the first agent joined", up)
	id, err := os.ReadFile(filepath.Join(env.dir, "shared", "id"))
	require.NoError(t, err)
	copied := filepath.Join(env.dir, "copy")
	require.NoError(t, os.MkdirAll(copied, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(copied, "id"), id, 0o600))
	env.startAgent("shared", "--state-dir", copied)
	env.hostStatus("shared", "the copy took over", func(s api.HostStatus) bool { return up(s) && s.Epoch == 2 })
	ended := make(chan struct{})
	go func() { defer close(ended); _ = first.cmd.Wait() }()
	select {
	case <-ended:
		require.Equal(t, 1, first.cmd.ProcessState.ExitCode())
	case <-time.After(waitTimeout):
		require.Fail(t, "the first agent continues beside its successor")
	}
}

func TestAHostsWorkflowThatWasTerminatedIsStartedAgain(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("lonely")
	before := env.hostStatus("lonely", "the agent joined", up)
	pool := env.startPool(echoSpec("lonely", 1))
	worker := env.waitFor(pool, "ready", func(v api.PoolWorkers) bool { return v.Ready == 1 }).Workers[0]
	env.terminate(api.HostWorkflowID("lonely"))
	again := env.hostStatus("lonely", "the agent joins again",
		func(s api.HostStatus) bool { return up(s) && s.Since.After(before.Since) })
	require.Equal(t, before.Instance, again.Instance)
	require.Equal(t, before.Epoch, again.Epoch, "nobody else has had the host id")
	_, err := pool.CheckoutOnce(t.Context(), 0, tempool.CheckoutOptions{Holder: "me"})
	require.NoError(t, err)
	view, err := pool.Workers(t.Context())
	require.NoError(t, err)
	require.Equal(t, worker.PID, view.Workers[0].PID, "its process serves on")
}

func TestTheWorkersOfAKilledAgentAreBackAsSoonAsItIsStartedAgain(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	agent := env.startAgent("phoenix")
	pool := env.startPool(echoSpec("phoenix", 5))
	env.waitFor(pool, "ready", func(v api.PoolWorkers) bool { return v.Ready == 5 })
	slow := false
	for round := range 2 {
		began := time.Now()
		agent.kill()
		agent = env.startAgent("phoenix")
		env.hostStatus("phoenix", "the next agent joined",
			func(s api.HostStatus) bool { return up(s) && s.Epoch == int64(round+2) })
		slow = slow || time.Since(began) > api.HostHeartbeatTimeout // so that its host may have been lost first
		env.waitFor(pool, "every worker has its next process", func(v api.PoolWorkers) bool {
			for _, w := range v.Workers {
				if w.State != lifecycle.Ready || w.Incarnation < int64(round+2) {
					return false
				}
			}
			return true
		})
		t.Logf("ready %s after the agent was killed", time.Since(began).Round(time.Millisecond))
	}
	for slot := range 5 {
		history, err := pool.History(t.Context(), slot)
		require.NoError(t, err)
		ends := 0
		for _, transition := range history {
			if transition.Event == lifecycle.Exited {
				ends++
				if !slow {
					require.Contains(t, transition.Reason, "the agent of host phoenix was started again",
						"no worker had to wait for a time-out")
				}
			}
		}
		require.Equal(t, 2, ends)
	}
}

func TestAFrozenAgentThatWasSucceededEndsWhenItWakes(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	frozen := env.startAgent("shared")
	env.hostStatus("shared", "the first agent joined", up)
	require.NoError(t, frozen.cmd.Process.Signal(syscall.SIGSTOP))
	env.startAgent("shared", "--state-dir", filepath.Join(env.dir, "elsewhere"))
	env.hostStatus("shared", "another agent took over", func(s api.HostStatus) bool { return up(s) && s.Epoch == 2 })
	require.NoError(t, frozen.cmd.Process.Signal(syscall.SIGCONT))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = frozen.cmd.Wait() }()
	select {
	case <-ended:
		require.Equal(t, 1, frozen.cmd.ProcessState.ExitCode())
	case <-time.After(waitTimeout):
		require.Fail(t, "the frozen agent continues beside its successor")
	}
	require.Equal(t, int64(2), env.hostStatus("shared", "the successor stays", up).Epoch)
}
