package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker"
)

// Calls of the pool keep all workers busy. A checkout costs what the lease costs, and calls cost nothing.
func eventsOfACheckoutUnderLoad(env *testEnv) {
	t := env.t
	const workers, checkouts = 2, 20
	pool := env.startPool(echoSpec("held", workers))
	env.waitReady(pool, workers)
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
		var lease api.Lease
		answer := mustRequest(t, gateway, "POST", "/v1/pools/held/leases", `{"holder":"me","wait_ms":30000}`, "")
		require.NoError(t, json.Unmarshal([]byte(answer), &lease))
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

// waitingFor is how long clients wait before a lease is returned.
const waitingFor = 10 * time.Second

// mostUpdates bounds the updates in a second of fifty clients that wait for waitingFor. Each asks three workers at
// once, then some five in pauses that double, then one every one to three seconds: at most some 90 a second altogether.
// Clients that asked again as soon as they may would send thousands.
const mostUpdates = 100.0

// updateCounter counts the updates that a client sends, as the SDK's metrics do.
type updateCounter struct {
	client.MetricsHandler
	updates *atomic.Int64
}

func newUpdateCounter() updateCounter {
	return updateCounter{client.MetricsNopHandler, new(atomic.Int64)}
}

func (c updateCounter) WithTags(tags map[string]string) client.MetricsHandler {
	if tags["operation"] == "UpdateWorkflowExecution" {
		return countedUpdates(c)
	}
	return c
}

type countedUpdates struct {
	client.MetricsHandler
	updates *atomic.Int64
}

func (c countedUpdates) WithTags(map[string]string) client.MetricsHandler { return c }

func (c countedUpdates) Counter(name string) client.MetricsCounter {
	if name != "temporal_request" && name != "temporal_long_request" {
		return c.MetricsHandler.Counter(name)
	}
	return counterFunc(func(n int64) { c.updates.Add(n) })
}

type counterFunc func(int64)

func (f counterFunc) Inc(n int64) { f(n) }

var leased = flag.Int("leased", 16, "number of leased workers, an even one, that clients wait for")

// busyPool is a pool on two agents whose workers are all leased.
func (env *testEnv) busyPool(name string) (leases []*tempool.Lease, hosts []string) {
	hosts = []string{name + "-a", name + "-b"}
	for _, host := range hosts {
		env.startAgent(host, "--capacity", strconv.Itoa(*leased/len(hosts)))
	}
	s := echoSpec(name, *leased)
	s.Lease.TTL = spec.Duration(time.Hour) // none expires, however long the test takes
	pool := env.startPool(s)
	for slot := range *leased {
		lease, err := pool.Checkout(env.t.Context(), tempool.CheckoutOptions{Holder: "first", Slot: &slot})
		require.NoError(env.t, err)
		leases = append(leases, lease)
	}
	return leases, hosts
}

// waitingClients starts 50 clients, as many programs would be, that wait for a lease. It returns their leases and
// errors.
func (env *testEnv) waitingClients(ctx context.Context, pool string,
	counter updateCounter) (<-chan *tempool.Lease, <-chan error) {
	connection, err := tempool.Dial(env.t.Context(),
		tempool.Options{Address: env.server.Address(), Logger: newDiscardLogger(), Metrics: counter})
	require.NoError(env.t, err)
	env.t.Cleanup(connection.Close)
	granted, failed := make(chan *tempool.Lease, 50), make(chan error, 50)
	for i := range 50 {
		c := tempool.NewClient(connection.Temporal(), connection.Namespace())
		env.t.Cleanup(c.Close)
		go func() {
			lease, err := c.Pool(pool).Checkout(ctx, tempool.CheckoutOptions{Holder: fmt.Sprint("client ", i), NoRenew: true})
			if err != nil {
				failed <- err
				return
			}
			granted <- lease
		}()
	}
	return granted, failed
}

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

// Clients reach no gateway; what those cost that do is a matter of the gateway's own tests.
func TestClientsThatWaitWithoutAGatewayCostFewUpdates(t *testing.T) {
	env := newEnv(t)
	leases, hosts := env.busyPool("crowded")
	for _, host := range hosts {
		require.NoError(t, os.Remove(filepath.Join(env.dir, host, worker.SocketName)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	counter, began := newUpdateCounter(), time.Now()
	granted, failed := env.waitingClients(ctx, "crowded", counter)
	require.Eventually(t, func() bool { return time.Since(began) > waitingFor || len(granted)+len(failed) > 0 },
		waitTimeout, 50*time.Millisecond)
	require.Empty(t, granted)
	require.Empty(t, failed)
	require.NoError(t, leases[0].Checkin(t.Context(), api.OutcomeOK))
	require.Equal(t, leases[0].Worker, await(t, granted).Worker)
	updates := counter.updates.Load()
	took := time.Since(began)
	t.Logf("%d updates of 50 clients in %s", updates, took)
	require.Positive(t, updates, "the count works")
	require.Less(t, float64(updates)/took.Seconds(), mostUpdates)
	cancel()
	for range 49 {
		require.Error(t, await(t, failed))
	}
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
