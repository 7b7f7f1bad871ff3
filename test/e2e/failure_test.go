package e2e

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

func countOf(namespace, query string) *workflowservice.CountWorkflowExecutionsRequest {
	return &workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace, Query: query}
}

func TestAKilledProcessIsReplacedAndItsHistorySaysWhy(t *testing.T) {
	env := oneHost(t, "crash")
	pool := env.startPool(echoSpec("crash", 1))
	before := env.waitState(pool, 0, lifecycle.Ready)
	killProcess(t, before.PID)
	env.waitLater(pool, "the next incarnation is ready", before.Incarnation)
	found := false
	for _, tr := range env.history(pool, 0) {
		if tr.Event == lifecycle.Exited {
			found = true
			require.Equal(t, lifecycle.Failed, tr.To)
			require.Contains(t, tr.Reason, "SIGKILL")
			require.Equal(t, map[string]string{"code": "0", "signal": "SIGKILL"}, tr.Metadata)
		}
	}
	require.True(t, found)
	require.False(t, processAlive(before.PID))
}

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
		agent.kill()
		killed := time.Now()
		require.Eventually(t, func() bool { return len(hostProcesses("doomed")) == 0 }, waitTimeout, 10*time.Millisecond)
		agent = env.startAgent("doomed")
		env.hostStatus("doomed", "the next agent joined",
			func(s api.HostStatus) bool { return up(s) && s.Epoch == int64(round+1) })
		slow = slow || time.Since(killed) > api.HostHeartbeatTimeout // so that its host may have been lost first
		view := env.waitFor(pool, "the pool is back", func(v api.PoolWorkers) bool {
			return v.Ready == 2 && v.Workers[0].Incarnation > int64(round) && v.Workers[1].Incarnation > int64(round)
		})
		require.Equal(t, map[string]int64{string(api.CauseHostLost): int64(round)}, view.Workers[0].RestartsByReason,
			"one restart is enough")
		t.Logf("ready %s after the agent was killed", time.Since(killed).Round(time.Millisecond))
		if round == rounds {
			break
		}
		_, err := env.client.Temporal().ExecuteWorkflow(t.Context(),
			client.StartWorkflowOptions{ID: api.PoolWorkflowID("stuck"), TaskQueue: "nowhere"},
			api.WorkflowPool, api.PoolStart{Pool: "stuck"})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			answer, err := env.client.Temporal().CountWorkflow(t.Context(),
				countOf(env.server.Namespace(), "WorkflowType = 'Pool' AND ExecutionStatus = 'Running'"))
			return err == nil && answer.GetCount() == 2
		}, waitTimeout, 50*time.Millisecond, "visibility lists both pools")
	}
	for slot := range 2 {
		ends := 0
		for _, transition := range env.history(pool, slot) {
			if transition.Event == lifecycle.Exited {
				ends++
				if !slow {
					require.Contains(t, transition.Reason, "the agent of host doomed was started again",
						"no worker had to wait for a time-out")
				}
			}
		}
		require.Equal(t, rounds, ends)
	}
}

func TestWorkersSurviveATemporalOutage(t *testing.T) {
	env := oneHost(t, "outage")
	pool := env.startPool(echoSpec("outage", 2))
	lease := env.checkout(pool, tempool.CheckoutOptions{Holder: "me", TTL: time.Hour})
	before := env.waitReady(pool, 2)

	require.NoError(t, env.server.Kill())
	<-env.server.Done()
	sleep(t, 15*time.Second) // longer than the heartbeat timeout: the restarted server considers the agent lost
	for _, worker := range before.Workers {
		require.True(t, processAlive(worker.PID))
	}
	require.NoError(t, env.server.Restart(t.Context()))

	var after api.PoolWorkers
	after = env.waitReady(pool, 2)
	sleep(t, 25*time.Second) // until every timer that could fail the workers because of the outage has fired
	after = env.waitReady(pool, 2)
	for i := range after.Workers {
		require.Equal(t, before.Workers[i].PID, after.Workers[i].PID)
		require.Equal(t, before.Workers[i].Incarnation, after.Workers[i].Incarnation)
	}
	_, err := env.client.CheckinNow(t.Context(), api.CheckinRequest{LeaseID: lease.ID})
	require.NoError(t, err)
	_, slot, err := api.ParseWorkerName(lease.Worker)
	require.NoError(t, err)
	env.waitState(pool, slot, lifecycle.Ready)
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
	require.Zero(t, movedTo("staying").Workers[0].ConsecutiveFailures, "a shutdown does not count as a failure")

	env.startAgent("other")
	second.kill()
	movedTo("other")
}

func TestAWorkerWithoutAHostStaysPendingAndSaysWhy(t *testing.T) {
	env := oneHost(t, "labelled", "--labels", "gpu")
	s := echoSpec("homeless", 1)
	pool := env.beginPool(s)
	st := env.waitState(pool, 0, lifecycle.Pending)
	require.Contains(t, st.Reason, "tempool/place/default")
	env.startAgent("home")
	env.waitReady(pool, 1)
}

func TestCapacityIsNeverExceeded(t *testing.T) {
	env := oneHost(t, "small", "--capacity", "2")
	pool := env.beginPool(echoSpec("capacity", 4))
	env.waitFor(pool, "two run and two are pending", func(v api.PoolWorkers) bool {
		pending := 0
		for _, worker := range v.Workers {
			if worker.State == lifecycle.Pending {
				pending++
			}
		}
		require.LessOrEqual(t, v.Ready, 2)
		return v.Ready == 2 && pending == 2
	})
	env.startAgent("more", "--capacity", "2")
	env.waitReady(pool, 4)
}

func TestFreedCapacityWakesAsManyWorkersAsFit(t *testing.T) {
	env := newEnv(t)
	const capacity, size = 2, 8
	host := fmt.Sprintf("narrow-%d", os.Getpid())
	env.startAgent(host, "--capacity", fmt.Sprint(capacity))
	s := spec.Default()
	s.Pool.Name, s.Pool.Size, s.Pool.Command, s.Pool.Protocol = "narrow", size, []string{"sleep",
		"1000"}, spec.ProtocolNone
	s.Health.Kind, s.Health.Command = spec.HealthExec, []string{"true"}
	// a probe that times out on a busy machine would write, too
	s.Start.Timeout, s.Health.Interval = spec.Duration(waitTimeout), spec.Duration(time.Hour)
	pool := env.beginPool(s)
	full := func(v api.PoolWorkers) bool {
		pending := 0
		for _, worker := range v.Workers {
			if worker.State == lifecycle.Pending {
				pending++
			}
		}
		return v.Ready == capacity && pending == size-capacity
	}
	view := env.waitFor(pool, "the host is full", full)
	starts := func() (n int) {
		for slot := range size {
			for _, event := range env.acceptedEvents(api.WorkerWorkflowID("narrow", slot)) {
				if event.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == api.ActivityStart {
					n++
				}
			}
		}
		return n
	}
	before := starts()
	killed := view.Workers[slices.IndexFunc(view.Workers,
		func(w api.Worker) bool { return w.State == lifecycle.Ready })].PID
	killProcess(t, killed)
	env.waitFor(pool, "the host is full again", func(v api.PoolWorkers) bool {
		gone := !slices.ContainsFunc(v.Workers,
			func(w api.Worker) bool { return w.State == lifecycle.Ready && w.PID == killed })
		return full(v) && gone && len(hostProcesses(host)) == capacity
	})
	sleep(t, 12*time.Second) // a worker that was woken in vain takes ten seconds to be pending again
	env.waitFor(pool, "the host is full again", full)
	woken := starts() - before
	// two: its own, and that of the worker to which the slot was promised meanwhile
	t.Logf("one crash led to %d starts", woken)
	require.Less(t, woken, size-capacity, "not all that wait are woken")
}
