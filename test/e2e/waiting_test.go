package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

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

func (env *testEnv) updatesOf(hosts []string) (n float64) {
	for _, host := range hosts {
		seen := readScrape(env.t, env.gatewayClient(host))
		for _, name := range []string{"temporal_request_total", "temporal_long_request_total"} {
			for _, m := range seen.series(name, "operation", "UpdateWorkflowExecution") {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// await receives a value, or fails the test.
func await[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(waitTimeout):
		require.FailNow(t, "timed out")
	}
	return value
}
