package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// Twice an agent is killed and started again, the second time beside a pool whose workflow does not answer, because no
// agent polls its task queue: it keeps no other pool's workers waiting.
func TestAKilledAgentLeavesNoProcessAndTheNextAgentRestoresThePool(t *testing.T) {
	env := newEnv(t)
	agent := env.startAgent("doomed")
	pool := env.startPool(pythonSpec("doomed", 2, "grandchild.py"))
	require.GreaterOrEqual(t, len(hostProcesses("doomed")), 4, "two workers, each with a child process")
	const rounds = 2
	slow := false
	for round := 1; round <= rounds; round++ {
		require.NoError(t, pool.Call(t.Context(), "echo", 1, nil))
		require.Eventually(t, func() bool {
			h, err := env.client.HostHeartbeat(t.Context(), "doomed")
			return err == nil && slices.ContainsFunc(h.Used(), func(u api.ProcessUsage) bool { return u.Usage.Requests > 0 })
		}, waitTimeout, 50*time.Millisecond, "the call is reported")
		agent.kill()
		killed := time.Now()
		if round == rounds { // the end of its liveness and the join of the next agent come together
			sleep(t, api.HostHeartbeatTimeout+time.Second)
		}
		require.Eventually(t, func() bool { return len(hostProcesses("doomed")) == 0 }, waitTimeout, 10*time.Millisecond)
		agent = env.startAgent("doomed")
		env.hostStatus("doomed", "the next agent joined",
			func(s api.HostStatus) bool { return up(s) && s.Epoch == int64(round+1) })
		slow = slow || time.Since(killed) > api.HostHeartbeatTimeout+api.HostGrace // lost before, perhaps
		view := env.waitFor(pool, "the pool is back", func(v api.PoolWorkers) bool {
			return v.Ready == 2 && v.Workers[0].Incarnation > int64(round) && v.Workers[1].Incarnation > int64(round)
		})
		env.waitFor(pool, "the calls that the agents had reported count", func(v api.PoolWorkers) bool {
			return v.Workers[0].RequestsServed+v.Workers[1].RequestsServed == int64(round)
		})
		require.Len(t, view.Workers[0].RestartsByReason, 1) // and see below
		require.GreaterOrEqual(t, view.Workers[0].RestartsByReason[string(api.CauseHostLost)], int64(round))
		t.Logf("ready %s after the agent was killed", time.Since(killed).Round(time.Millisecond))
		if round == rounds {
			break
		}
		env.execute(api.PoolWorkflowID("stuck"), "nowhere", api.WorkflowPool, api.PoolStart{Pool: "stuck"})
		env.waitCount("WorkflowType = 'Pool' AND ExecutionStatus = 'Running'", func(n int) bool { return n == 2 })
	}
	for slot := range 2 {
		ends := noted(env.history(pool, slot), lifecycle.Exited)
		require.Len(t, ends, rounds, "one restart is enough; a start that a busy Temporal lost ends no process")
		for _, reason := range ends {
			require.True(t, slow || strings.Contains(reason, "the agent of host doomed was started again"),
				"no worker had to wait for a time-out: %s", reason)
		}
	}
}

// The agent of a host stops, and that of the next one is killed.
func TestStoppingAnAgentMovesItsWorkersAndLeavesNoProcess(t *testing.T) {
	env := newEnv(t)
	first := env.startAgent("leaving")
	pool := env.startPool(echoSpec("moving", 2))
	second := env.startAgent("staying")
	movedTo := func(host string) api.PoolWorkers {
		t.Helper()
		return env.waitFor(pool, "the workers have moved to "+host, func(v api.PoolWorkers) bool {
			return v.Ready == 2 && v.Workers[0].Host == host && v.Workers[1].Host == host
		})
	}
	first.stop()
	require.Zero(t, first.cmd.ProcessState.ExitCode())
	require.Empty(t, hostProcesses("leaving"))
	log, err := os.ReadFile(first.log)
	require.NoError(t, err)
	require.NotRegexp(t, `"level":"ERROR".*"ActivityType":"Sweep"`, string(log), "that an agent stops is no error")
	require.Zero(t, movedTo("staying").Workers[0].ConsecutiveFailures, "a shutdown does not count as a failure")

	env.startAgent("other")
	second.kill()
	movedTo("other")
}
