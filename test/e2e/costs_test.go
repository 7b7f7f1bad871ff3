package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

func TestAWorkerCostsFewEvents(t *testing.T) {
	oneHost(t, "host").atOnce(map[string]func(*testEnv){
		"until it is ready":     eventsUntilReady,
		"a day without work":    eventsOfAnIdleWorker,
		"a checkout under load": eventsOfACheckoutUnderLoad,
	})
}

// A worker's workflow has twelve events when it is ready: its start (1), the task that starts the process (3), the
// activity Start (3), the task that takes its result (3), a timer and the search attributes.
func eventsUntilReady(env *testEnv) {
	t := env.t
	pool := env.startPool(echoSpec("thrifty", 3))
	for slot := range 3 {
		events := env.acceptedEvents(api.WorkerWorkflowID(pool.Name(), slot))
		require.LessOrEqual(t, len(events), 12, "%v", events)
	}
	until(env, "the agent has not reported to the pool", pool.Status, func(s api.PoolStatus) bool {
		return s.Ready == 3 && s.Workers[0].Host == "host" && s.Workers[0].PID > 0
	})
}

func eventsOfAnIdleWorker(env *testEnv) {
	t := env.t
	s := echoSpec("idle", 1)
	everyDay := 24 * time.Hour / s.Health.Checkpoint.D() // checkpoints per day with the default spec
	require.NoError(t, s.Health.Checkpoint.UnmarshalText([]byte("1s")))
	env.startPool(s)
	id := api.WorkerWorkflowID("idle", 0)
	const skipped, counted = 2, 10 // checkpoints
	var probes []int               // how many events there were when each activity was completed
	for deadline := time.Now().Add(waitTimeout); len(probes) <= skipped+counted; sleep(t, 100*time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "%d checkpoints", len(probes))
		probes = nil
		for i, event := range env.acceptedEvents(id) {
			if event.GetEventType() == enums.EVENT_TYPE_ACTIVITY_TASK_COMPLETED {
				probes = append(probes, i)
			}
		}
	}
	each := float64(probes[skipped+counted]-probes[skipped]) / counted
	perDay := each * float64(everyDay)
	t.Logf("%.1f events for each checkpoint, %d checkpoints a day: %.0f events", each, everyDay, perDay)
	require.LessOrEqual(t, perDay+500, 4000.0, "500 events remain for starts and stops")
}

// Calls of the pool keep all workers busy. A checkout costs what the lease costs, and calls cost nothing.
func eventsOfACheckoutUnderLoad(env *testEnv) {
	t := env.t
	const workers, checkouts = 2, 20
	env.startPool(echoSpec("held", workers))
	events := func() (n int) {
		for slot := range workers {
			n += len(env.acceptedEvents(api.WorkerWorkflowID("held", slot)))
		}
		return n
	}
	before := events()
	l := startLoad(t, env.gatewayClient("host"), "/v1/pools/held/call/echo", 100, 4)
	require.Eventually(t, func() bool { return l.calls.Load() > 1000 }, waitTimeout, 10*time.Millisecond)
	require.LessOrEqual(t, events()-before, workers*eventsOfACheckpoint, "calls of the pool write nothing")
	before = events()
	began, ttl := time.Now(), time.Duration(spec.Default().Lease.TTL)
	gateway := env.gatewayClient("host")
	for range checkouts {
		lease := decode[api.Lease](t, mustRequest(t, gateway, "POST", "/v1/pools/held/leases",
			`{"holder":"me","wait_ms":300000}`, ""))
		token := lease.ID + "~" + lease.Token
		require.Equal(t, `"mine"`, mustRequest(t, gateway, "POST", "/v1/leases/"+token+"/call/echo", `"mine"`, ""))
		mustRequest(t, gateway, "DELETE", "/v1/leases/"+token, "", "")
	}
	cost := events() - before
	l.stop()
	require.Zero(t, l.failed.Load(), "of %d calls: %s", l.calls.Load(), l.firstFailure())
	t.Logf("%d checkouts among %d calls left %d events", checkouts, l.calls.Load(), cost)
	timers := int(time.Since(began) / ttl) // none on a fast machine
	require.LessOrEqual(t, cost, checkouts*mostEventsOfALease+workers*(eventsOfACheckpoint+timers*eventsOfALeaseTimer))
}

const (
	// mostEventsOfALease bounds those of its checkout and its checkin, eventsOfALeaseTimer those of the timer of all
	// leases of a worker, which starts again when it has fired.
	mostEventsOfALease  = 10
	eventsOfALeaseTimer = 5
	// eventsOfACheckpoint are those of a timer and a probe.
	eventsOfACheckpoint = 12
)
