package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker"
)

func TestClientsThatWaitForAWorkerAGatewayUsesCostFewEvents(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("held")
	pool, notes := env.startTroublePool("held", 1)
	gateway := env.gatewayClient("held")
	release := filepath.Join(env.dir, "release")
	id := api.WorkerWorkflowID("held", 0)
	call := make(chan int, 1)
	go func() {
		status, _, _ := post(t, gateway, "/v1/pools/held/call/wait_for", fmt.Sprintf("[%q]", release))
		call <- status
	}()
	waitForNote(t, notes, "begin")
	env.waitState(pool, 0, lifecycle.Busy)
	before, _ := env.countEvents(id)
	var waiting sync.WaitGroup
	for i := range 5 {
		waiting.Go(func() {
			temporalOnly := env.client.Pool("held")
			_, err := temporalOnly.Checkout(t.Context(),
				tempool.CheckoutOptions{Holder: fmt.Sprint("holder ", i), Wait: waitingFor})
			if api.CodeOf(err) != api.CodeQueueTimeout {
				t.Errorf("holder %d: %v", i, err)
			}
		})
	}
	waiting.Wait()
	after, byType := env.countEvents(id)
	after -= repeatedTaskEvents(byType)
	t.Logf("5 clients that waited %s left %d events", waitingFor, after-before)
	require.LessOrEqual(t, after-before, 60, "%v", byType)
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	require.Equal(t, http.StatusOK, <-call)
	lease, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "me", Wait: waitTimeout})
	require.NoError(t, err, "the gateway returns the lease when the call has ended")
	require.NoError(t, lease.Checkin(t.Context(), api.OutcomeOK))
}

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

func TestClientsThatWaitForAnyWorkerCostFewUpdates(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	leases, hosts := env.busyPool("crowded")
	for _, lease := range leases[:8] {
		require.NoError(t, lease.Call(t.Context(), "echo", 1, nil), "its gateway knows the lease")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before, counter, began := env.updatesOf(hosts), newUpdateCounter(), time.Now()
	granted, failed := env.waitingClients(ctx, "crowded", counter)
	require.Eventually(t, func() bool { return time.Since(began) > waitingFor || len(granted)+len(failed) > 0 },
		waitTimeout, 50*time.Millisecond)
	require.Empty(t, granted)
	require.Empty(t, failed)
	for i, lease := range leases[:8] {
		returned := time.Now()
		require.NoError(t, lease.Checkin(t.Context(), api.OutcomeOK))
		next := await(t, granted)
		require.NotEmpty(t, next.Holder)
		t.Logf("lease %d was granted again after %s", i, time.Since(returned))
	}
	took := time.Since(began)
	own, agents := counter.updates.Load(), env.updatesOf(hosts)-before
	t.Logf("%d updates of 50 clients, %.0f of the gateways, in %s", own, agents, took)
	cancel()
	for range 42 {
		require.Error(t, await(t, failed))
	}
	require.Positive(t, own, "the count works")
	require.Positive(t, agents, "the count works")
	require.Less(t, (float64(own)+agents)/took.Seconds(), mostUpdates)
}

func TestClientsThatReachNoGatewayCostFewUpdates(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	leases, hosts := env.busyPool("remote")
	for _, host := range hosts {
		require.NoError(t, os.Remove(filepath.Join(env.dir, host, worker.SocketName)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	counter, began := newUpdateCounter(), time.Now()
	granted, failed := env.waitingClients(ctx, "remote", counter)
	require.Eventually(t, func() bool { return time.Since(began) > waitingFor || len(granted)+len(failed) > 0 },
		waitTimeout, 50*time.Millisecond)
	require.Empty(t, granted)
	require.NoError(t, leases[0].Checkin(t.Context(), api.OutcomeOK))
	require.Equal(t, leases[0].Worker, await(t, granted).Worker)
	took, updates := time.Since(began), counter.updates.Load()
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
