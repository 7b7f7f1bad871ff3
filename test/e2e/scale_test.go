package e2e

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// followingSpec is a pool that follows the demand from 0 to so many workers.
func (env *testEnv) followingSpec(name string, most int) spec.Spec {
	s := env.troubleSpec(name, 1)
	s.Scale.Max, s.Scale.TargetInflight = most, 1
	s.Scale.UpAfter, s.Scale.DownAfter, s.Scale.IdleToZero = spec.Duration(500*time.Millisecond), spec.Duration(
		2*time.Second), spec.Duration(3*time.Second)
	return s
}

// startFollowing starts a pool that may be down to no worker before anybody sees its first one.
func (env *testEnv) startFollowing(s spec.Spec) *tempool.Pool {
	env.t.Helper()
	pool := env.beginPool(s)
	env.waitFor(pool, "it has scaled",
		func(v api.PoolWorkers) bool { return v.Scale != nil && len(v.Scale.Decisions) > 0 })
	return pool
}

// waitZero waits until a pool has no worker.
func (env *testEnv) waitZero(pool *tempool.Pool) {
	env.t.Helper()
	env.waitFor(pool, "the last worker has gone",
		func(v api.PoolWorkers) bool { return v.Size == 0 && len(v.Workers) == 0 })
}

// TestAPoolOfTwoHostsFollowsALoadThatRisesTenfoldAndFallsToNothing goes from zero to the maximum and back, by calls and
// leases of clients, and no call fails.
func TestAPoolOfTwoHostsFollowsALoadThatRisesTenfoldAndFallsToNothing(t *testing.T) {
	env := oneHost(t, "near", "--capacity", "3")
	env.startAgent("far", "--capacity", "3")
	const most = 5
	s := env.followingSpec("rise", most)
	pool := env.startFollowing(s)
	env.waitZero(pool)
	quiet := len(env.historyEvents(api.PoolWorkflowID("rise")))

	var calls, failed atomic.Int64
	call := func(ctx context.Context) {
		calls.Add(1)
		if err := pool.Call(ctx, "nap", 0.1, nil); err != nil {
			failed.Add(1)
			t.Errorf("call: %v", err)
		}
	}
	began := time.Now()
	call(t.Context())
	t.Logf("the first call was answered %s after it had found no worker", time.Since(began).Round(time.Millisecond))

	var callers sync.WaitGroup
	var stopped atomic.Bool
	load := func(n int) {
		for range n {
			callers.Go(func() {
				for !stopped.Load() {
					call(t.Context())
				}
			})
		}
	}
	load(1)
	env.waitFor(pool, "one caller has a worker", func(v api.PoolWorkers) bool { return v.Ready >= 1 })
	began = time.Now()
	load(9)
	full := env.waitFor(pool, "all workers serve", func(v api.PoolWorkers) bool { return v.Ready == most })
	t.Logf("from one caller to ten: %d workers after %s", most, time.Since(began).Round(time.Millisecond))
	hosts := map[string]bool{}
	for _, w := range full.Workers {
		hosts[w.Host] = true
	}
	require.Len(t, hosts, 2, "five workers do not fit on one host")
	lease := env.checkout(pool, tempool.CheckoutOptions{Holder: "patient", Wait: waitTimeout})
	callers.Go(func() { // far longer than drain_timeout, on a worker that is not wanted meanwhile
		if err := pool.Call(t.Context(), "nap", []any{15.0, "long"}, nil); err != nil {
			failed.Add(1)
			t.Errorf("long call: %v", err)
		}
	})
	waitForNote(t, s.Pool.Env["NOTES"], "begin long")
	began = time.Now()
	stopped.Store(true)
	callers.Wait()
	left := env.waitFor(pool, "only the leased worker is left",
		func(v api.PoolWorkers) bool { return v.Size == 1 && len(v.Workers) == 1 })
	t.Logf("from ten callers to none: one worker after %s, and %d calls, %d of which failed",
		time.Since(began).Round(time.Millisecond), calls.Load(), failed.Load())
	require.Equal(t, lease.Worker, left.Workers[0].Worker)
	sleep(t, 6*time.Second) // longer than idle_to_zero
	require.NoError(t, lease.Call(t.Context(), "nap", 0.01, nil), "no lease is cut")
	require.NoError(t, lease.Checkin(t.Context(), api.OutcomeOK))
	env.waitZero(pool)
	require.Zero(t, failed.Load())

	status := until(env, "demand is left", pool.Status,
		func(s api.PoolStatus) bool { return s.Scale != nil && len(s.Scale.Demand) == 0 })
	require.NotEmpty(t, status.Scale.Decisions)
	for _, d := range status.Scale.Decisions {
		require.NotEmpty(t, d.Reason)
		require.NotEqual(t, d.From, d.To)
	}
	events := func() int { return len(env.historyEvents(api.PoolWorkflowID("rise"))) }
	last, deadline := events(), time.Now().Add(waitTimeout)
	for n := 0; n != last; { // what its last workers report may come late
		require.True(t, time.Now().Before(deadline), "a pool without demand writes no history")
		n = last
		sleep(t, 10*time.Second)
		last = events()
	}
	t.Logf("%d events of the pool's workflow, %d of them before the load", last, quiet)
}

// TestTheFirstRequestOfAPoolWithoutWorkersStartsOne asks by every way but a call of the client, which is a request to a
// gateway.
func TestTheFirstRequestOfAPoolWithoutWorkersStartsOne(t *testing.T) {
	env := oneHost(t, "one")
	env.startAgent("other")
	gateways := []*http.Client{waitForGateway(t, env.gatewayClient("one")), waitForGateway(t, env.gatewayClient("other"))}
	s := env.followingSpec("wake", 3)
	pool := env.startFollowing(s)
	for name, ask := range map[string]func() error{
		"HTTP": func() error {
			for turn, deadline := 0, time.Now().Add(waitTimeout); time.Now().Before(deadline); turn++ {
				status, answer, _ := post(t, gateways[turn%2], "/v1/pools/wake/call/nap", `0.01`)
				// the worker has started on the other host, whose gateway the answer names
				if status == http.StatusServiceUnavailable {
					continue
				}
				require.Equal(t, http.StatusOK, status, answer)
				return nil
			}
			return errors.New("each of the two hosts refers to the other")
		},
		"lease":              func() error { return leaseOnce(t.Context(), pool) },
		"lease at a gateway": func() error { return leaseOnce(t.Context(), env.clientOf("one").Pool("wake")) },
	} {
		env.waitZero(pool)
		began := time.Now()
		require.NoError(t, ask(), name)
		t.Logf("%s: answered after %s", name, time.Since(began).Round(time.Millisecond))
	}
}

// TestACallOfAWorkflowStartsTheFirstWorkerOfAPool has nobody poll the pool's task queue: the agent that ran its last
// worker was replaced.
func TestACallOfAWorkflowStartsTheFirstWorkerOfAPool(t *testing.T) {
	env := newEnv(t)
	old := env.startAgent("old")
	env.startUserWorker()
	s := env.followingSpec("asleep", 1)
	pool := env.startFollowing(s)
	env.waitZero(pool)
	old.stop()
	env.startAgent("new")
	run := env.startCallWorkflow("first",
		executeInput{Pool: "asleep", Request: map[string]any{"method": "nap", "params": 0.01}})
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	require.NoError(t, run.Get(ctx, nil), "the call waits in Temporal, and its wait starts a worker")
	env.waitZero(pool)
	env.atOnce(map[string]func(*testEnv){
		"a schedule scales a pool":                 scheduledScale,
		"a pool forgets the demand of a lost host": demandOfALostHost,
	})
}

func leaseOnce(ctx context.Context, pool *tempool.Pool) error {
	lease, err := pool.Checkout(ctx, tempool.CheckoutOptions{Holder: "me", Wait: waitTimeout})
	if err != nil {
		return err
	}
	return lease.Checkin(ctx, api.OutcomeOK)
}

// scheduledScale runs the Schedule of docs/scale.md at once.
func scheduledScale(env *testEnv) {
	t := env.t
	pool := env.startPool(echoSpec("clock", 1))
	scheduled := func(id string, input api.ScheduledScale) {
		env.repeat(func(ctx context.Context) error {
			_, err := env.client.Temporal().ScheduleClient().Create(ctx, client.ScheduleOptions{
				ID: id, Spec: client.ScheduleSpec{CronExpressions: []string{"0 8 * * 1-5"}, TimeZoneName: "Europe/Berlin"},
				TriggerImmediately: true,
				Action: &client.ScheduleWorkflowAction{ID: "scale-" + id, Workflow: api.WorkflowScale,
					TaskQueue: api.TaskQueue, Args: []any{input}},
			})
			if errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
				return nil
			}
			return err
		})
	}
	scheduled("morning", api.ScheduledScale{Pool: "clock",
		ScaleRequest: api.ScaleRequest{Bounds: &api.ScaleBounds{Min: 3, Max: 4}}})
	v := env.waitReady(pool, 3)
	require.Equal(t, 3, v.Scale.Min)
	scheduled("wrong", api.ScheduledScale{Pool: "clock", ScaleRequest: api.ScaleRequest{Size: 9}})
	// a refused scale is a failed workflow
	env.waitCount("WorkflowType = 'Scale' AND ExecutionStatus = 'Failed'", func(n int) bool { return n == 1 })
}

// demandOfALostHost kills the agent of a host with demand.
func demandOfALostHost(env *testEnv) {
	t := env.t
	lost := env.startAgent("lost", "--labels", "none")
	s := env.followingSpec("lose", 4)
	pool := env.startFollowing(s)
	gateway := waitForGateway(t, env.gatewayClient("lost"))
	var waiting sync.WaitGroup
	defer waiting.Wait()
	killed, stop := context.WithCancel(t.Context())
	defer stop()
	for range 8 { // more than the pool has workers for
		waiting.Go(func() {
			for killed.Err() == nil { // a gateway that has just started may not know the pool yet
				_, _, _ = send(t.Context(), gateway, http.MethodPost, "/v1/pools/lose/leases",
					`{"holder": "x", "wait_ms": 60000}`)
				wait(killed, 50*time.Millisecond)
			}
		})
	}
	env.waitFor(pool, "the gateway's demand has arrived",
		func(v api.PoolWorkers) bool { return v.Scale != nil && v.Scale.Load > 0 })
	stop()
	lost.kill()
	env.waitFor(pool, "the lost host has no demand", func(v api.PoolWorkers) bool { return v.Scale.Load == 0 })
}
