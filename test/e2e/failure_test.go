package e2e

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

func countOf(namespace, query string) *workflowservice.CountWorkflowExecutionsRequest {
	return &workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace, Query: query}
}

func TestAKilledProcessIsReplacedAndItsHistorySaysWhy(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("crash")
	pool := env.startPool(echoSpec("crash", 1))
	before := env.waitState(pool, 0, lifecycle.Ready)
	killProcess(t, before.PID)
	env.waitFor(pool, "the next incarnation is ready", func(v api.PoolWorkers) bool {
		return v.Ready == 1 && v.Workers[0].Incarnation > before.Incarnation
	})
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

func TestAKilledAgentLeavesNoProcessAndTheNextAgentRestoresThePool(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	first := env.startAgent("doomed")
	pool := env.startPool(pythonSpec("doomed", 2, "grandchild.py"))
	require.GreaterOrEqual(t, len(hostProcesses("doomed")), 4, "two workers, each with a child process")
	first.kill()
	require.Eventually(t, func() bool { return len(hostProcesses("doomed")) == 0 }, waitTimeout, 10*time.Millisecond)

	env.startAgent("doomed")
	view := env.waitFor(pool, "the pool is back", func(v api.PoolWorkers) bool {
		return v.Ready == 2 && v.Workers[0].Incarnation > 1 && v.Workers[1].Incarnation > 1
	})
	require.Equal(t, map[string]int64{string(api.CauseHostLost): 1}, view.Workers[0].RestartsByReason,
		"one restart is enough")
}

func TestWorkersSurviveATemporalOutage(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("outage")
	pool := env.startPool(echoSpec("outage", 2))
	lease, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "me", TTL: time.Hour})
	require.NoError(t, err)
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
	_, err = env.client.CheckinNow(t.Context(), api.CheckinRequest{LeaseID: lease.ID})
	require.NoError(t, err)
	_, slot, err := api.ParseWorkerName(lease.Worker)
	require.NoError(t, err)
	env.waitState(pool, slot, lifecycle.Ready)
}

func TestWorkersOfALostHostMoveToAnother(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	first := env.startAgent("one")
	pool := env.startPool(echoSpec("hosts", 2))
	env.startAgent("two")
	first.kill()
	env.waitFor(pool, "the workers are on the other host", func(v api.PoolWorkers) bool {
		return v.Ready == 2 && v.Workers[0].Host == "two" && v.Workers[1].Host == "two"
	})
}

func TestStoppingAnAgentMovesItsWorkersAndLeavesNoProcess(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	first := env.startAgent("leaving")
	pool := env.startPool(echoSpec("moving", 2))
	env.startAgent("staying")
	first.stop()
	require.Zero(t, first.cmd.ProcessState.ExitCode())
	require.Empty(t, hostProcesses("leaving"))
	view := env.waitFor(pool, "the workers have moved", func(v api.PoolWorkers) bool {
		return v.Ready == 2 && v.Workers[0].Host == "staying" && v.Workers[1].Host == "staying"
	})
	require.Zero(t, view.Workers[0].ConsecutiveFailures, "a shutdown does not count as a failure")
}

func TestASecondAgentWithTheSameHostIDIsRefused(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("duplicate")
	env.startPool(echoSpec("duplicate", 1))
	second := env.startAgent("duplicate", "--state-dir", env.dir+"/duplicate2")
	require.Error(t, second.cmd.Wait())
	require.Equal(t, 1, second.cmd.ProcessState.ExitCode())
}

func TestAWorkerWithoutAHostStaysPendingAndSaysWhy(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("labelled", "--labels", "gpu")
	s := echoSpec("homeless", 1)
	require.NoError(t, env.client.StartPool(t.Context(), api.PoolStart{Pool: "homeless", Spec: s}))
	pool := env.client.Pool("homeless")
	st := env.waitState(pool, 0, lifecycle.Pending)
	require.Contains(t, st.Reason, "tempool/place/default")
	env.startAgent("home")
	env.waitReady(pool, 1)
}

func TestCapacityIsNeverExceeded(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("small", "--capacity", "2")
	require.NoError(t, env.client.StartPool(t.Context(), api.PoolStart{Pool: "capacity", Spec: echoSpec("capacity", 4)}))
	pool := env.client.Pool("capacity")
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
	t.Parallel()
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
	require.NoError(t, env.client.StartPool(t.Context(), api.PoolStart{Pool: "narrow", Spec: s}))
	pool := env.client.Pool("narrow")
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
