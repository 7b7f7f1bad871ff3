package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func countOf(namespace, query string) *workflowservice.CountWorkflowExecutionsRequest {
	return &workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace, Query: query}
}

func TestAKilledProcessIsFollowedByTheNextIncarnationAndHistorySaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("crash")
	pool := w.start(echo("crash", 1))
	before := w.state(pool, 0, lifecycle.Ready)
	kill(t, before.PID)
	w.until(pool, "the next incarnation is ready", func(v api.PoolWorkers) bool {
		return v.Ready == 1 && v.Workers[0].Incarnation == before.Incarnation+1
	})
	history, err := pool.History(t.Context(), 0)
	require.NoError(t, err)
	found := false
	for _, tr := range history {
		if tr.Event == lifecycle.Exited {
			found = true
			require.Equal(t, lifecycle.Failed, tr.To)
			require.Contains(t, tr.Reason, "SIGKILL")
		}
	}
	require.True(t, found)
	require.False(t, alive(before.PID))
}

func TestNoDescendantOutlivesAKilledAgentAndTheNextAgentBringsThePoolBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.agent("doomed")
	pool := w.start(python("doomed", 2, "grandchild.py"))
	require.GreaterOrEqual(t, len(bearers("doomed")), 4, "two workers and a grandchild of each")
	first.kill()
	require.Eventually(t, func() bool { return len(bearers("doomed")) == 0 }, patience, 10*time.Millisecond)

	w.agent("doomed")
	view := w.until(pool, "the pool is back", func(v api.PoolWorkers) bool {
		return v.Ready == 2 && v.Workers[0].Incarnation > 1 && v.Workers[1].Incarnation > 1
	})
	require.EqualValues(t, 2, view.Workers[0].Incarnation, "one restart is enough")
}

func TestTheTemporalServerMayDieAndComeBackWithoutAnyWorkerNoticing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("outage")
	pool := w.start(echo("outage", 2))
	lease, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "me", TTL: time.Hour})
	require.NoError(t, err)
	before := w.ready(pool, 2)

	require.NoError(t, w.server.Kill())
	<-w.server.Done()
	pause(t, 15*time.Second) // longer than a heartbeat's timeout: on its return the server takes the agent for silent
	for _, worker := range before.Workers {
		require.True(t, alive(worker.PID))
	}
	require.NoError(t, w.server.Restart(t.Context()))

	var after api.PoolWorkers
	after = w.ready(pool, 2)
	pause(t, 25*time.Second) // every timer that could hold the outage against the workers has fired by now
	after = w.ready(pool, 2)
	for i := range after.Workers {
		require.Equal(t, before.Workers[i].PID, after.Workers[i].PID)
		require.EqualValues(t, 1, after.Workers[i].Incarnation)
	}
	_, err = w.client.CheckinNow(t.Context(), api.CheckinRequest{LeaseID: lease.ID})
	require.NoError(t, err)
	_, slot, err := api.ParseWorkerName(lease.Worker)
	require.NoError(t, err)
	w.state(pool, slot, lifecycle.Ready)
}

func TestALostHostsWorkersArePlacedOnAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.agent("one")
	pool := w.start(echo("hosts", 2))
	w.agent("two")
	first.kill()
	w.until(pool, "the workers are on the other host", func(v api.PoolWorkers) bool {
		return v.Ready == 2 && v.Workers[0].Host == "two" && v.Workers[1].Host == "two"
	})
}

func TestAnAgentThatIsAskedToStopLeavesNothingAndItsWorkersMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.agent("leaving")
	pool := w.start(echo("moving", 2))
	w.agent("staying")
	first.stop()
	require.Zero(t, first.cmd.ProcessState.ExitCode())
	require.Empty(t, bearers("leaving"))
	view := w.until(pool, "the workers have moved", func(v api.PoolWorkers) bool {
		return v.Ready == 2 && v.Workers[0].Host == "staying" && v.Workers[1].Host == "staying"
	})
	require.Zero(t, view.Workers[0].ConsecutiveFailures, "a shutdown is no failure")
}

func TestASecondAgentOfTheSameHostIDIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("twin")
	w.start(echo("twin", 1))
	second := w.agent("twin", "--state-dir", w.dir+"/twin2")
	require.Error(t, second.cmd.Wait())
	require.Equal(t, 1, second.cmd.ProcessState.ExitCode())
}

func TestAWorkerWithoutAHostIsPendingAndSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("labelled", "--labels", "gpu")
	s := echo("homeless", 1)
	require.NoError(t, w.client.StartPool(t.Context(), api.PoolStart{Pool: "homeless", Spec: s}))
	pool := w.client.Pool("homeless")
	st := w.state(pool, 0, lifecycle.Pending)
	require.Contains(t, st.Reason, "tempool/place/default")
	w.agent("home")
	w.ready(pool, 1)
}

func TestCapacityIsNeverExceeded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("small", "--capacity", "2")
	require.NoError(t, w.client.StartPool(t.Context(), api.PoolStart{Pool: "crowd", Spec: echo("crowd", 4)}))
	pool := w.client.Pool("crowd")
	w.until(pool, "two run and two are pending", func(v api.PoolWorkers) bool {
		pending := 0
		for _, worker := range v.Workers {
			if worker.State == lifecycle.Pending {
				pending++
			}
		}
		require.LessOrEqual(t, v.Ready, 2)
		return v.Ready == 2 && pending == 2
	})
	w.agent("more", "--capacity", "2")
	w.ready(pool, 4)
}
