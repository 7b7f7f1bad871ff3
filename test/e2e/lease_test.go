package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

func concurrentCheckouts(env *testEnv) {
	t := env.t
	pool := env.startPool(echoSpec("race", 1))
	var mu sync.Mutex
	var granted []*tempool.Lease
	codes := map[api.Code]int{}
	var group sync.WaitGroup
	begin := make(chan struct{})
	for i := range 100 {
		group.Go(func() {
			<-begin
			lease, err := pool.CheckoutOnce(t.Context(), 0,
				tempool.CheckoutOptions{Holder: fmt.Sprint("holder ", i), TTL: time.Hour})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				granted = append(granted, lease)
			} else {
				codes[api.CodeOf(err)]++
			}
		})
	}
	close(begin)
	group.Wait()
	require.Len(t, granted, 1)
	require.Equal(t, map[api.Code]int{api.CodeBusy: 99}, codes)
	require.Equal(t, granted[0].ID, env.waitState(pool, 0, lifecycle.Busy).Lease.ID)
}

// pairs is the number of leases in TestManyLeasesPassThroughContinueAsNew; make soak uses ten thousand.
var pairs = flag.Int("pairs", 1_000, "number of checkout and checkin pairs on one worker")

// The server suggests to continue as new eight times as often as by default.
func TestManyLeasesPassThroughContinueAsNew(t *testing.T) {
	t.Parallel()
	env := newEnvWith(t, "--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=512")
	env.startAgent("many")
	s := echoSpec("many", 1)
	s.Rotation.MaxRequests = 0
	pool := env.startPool(s)
	before := env.waitState(pool, 0, lifecycle.Ready)
	id := api.WorkerWorkflowID("many", 0)
	first := env.currentRun(id)
	var seq int64
	refusals := map[api.Code]int{}
	for i := range *pairs {
		var lease *tempool.Lease
		for lease == nil {
			var err error
			lease, err = pool.CheckoutOnce(t.Context(), 0,
				tempool.CheckoutOptions{Holder: "me", RequestID: fmt.Sprint("request ", i)})
			if err != nil {
				require.True(t, api.CodeOf(err).Retryable(), "checkout %d: %v", i, err)
				refusals[api.CodeOf(err)]++
			}
		}
		require.Greater(t, lease.Seq, seq, "no lease is granted twice")
		seq = lease.Seq
		require.NoError(t, env.client.Checkin(t.Context(),
			api.CheckinRequest{LeaseID: lease.ID, Usage: api.Usage{Requests: 1, TotalMS: 1}}))
	}
	st := env.waitState(pool, 0, lifecycle.Ready)
	require.Equal(t, before.Incarnation, st.Incarnation, "one process served them all")
	view := env.waitFor(pool, "each pair is counted", func(v api.PoolWorkers) bool {
		return v.Workers[0].LeasesGranted == int64(*pairs) && v.Workers[0].RequestsServed == int64(*pairs)
	})
	require.Zero(t, view.Workers[0].LeasesRefused)
	if takesArguments || *pairs >= 1_000 { // else the history is too short
		require.NotEqual(t, first, env.currentRun(id))
	}
	t.Logf("%d pairs through %d or more runs; refusals: %v", *pairs, env.countRuns(id), refusals)
}

// countRuns counts the runs of a workflow that visibility has.
func (env *testEnv) countRuns(id string) int {
	env.t.Helper()
	return env.waitCount(fmt.Sprintf("WorkflowId = '%s'", id), func(n int) bool { return n > 0 })
}

// waitCount waits until visibility, which lags, has as many runs by a query as holds says.
func (env *testEnv) waitCount(query string, holds func(n int) bool) int {
	env.t.Helper()
	return until(env, query, func(ctx context.Context) (int, error) {
		answer, err := env.client.Temporal().CountWorkflow(ctx,
			&workflowservice.CountWorkflowExecutionsRequest{Namespace: env.client.Namespace(), Query: query})
		return int(answer.GetCount()), err
	}, holds)
}

// historyEvents are the events of a workflow's current run.
func (env *testEnv) historyEvents(id string) []*history.HistoryEvent {
	env.t.Helper()
	return asked(env, func(ctx context.Context) ([]*history.HistoryEvent, error) { return env.readHistory(ctx, id, "") })
}

// readHistory reads the events of a run of a workflow; "" is the current one.
func (env *testEnv) readHistory(ctx context.Context, id, run string) (events []*history.HistoryEvent, err error) {
	iterator := env.client.Temporal().GetWorkflowHistory(ctx, id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for err == nil && iterator.HasNext() {
		var event *history.HistoryEvent
		event, err = iterator.Next()
		events = append(events, event)
	}
	return events, err
}

// hasEvent reports whether a workflow's current run has an event of a type.
func (env *testEnv) hasEvent(id string, kind enums.EventType) bool {
	return slices.ContainsFunc(env.historyEvents(id),
		func(e *history.HistoryEvent) bool { return e.GetEventType() == kind })
}

// acceptedEvents are historyEvents without those of workflow tasks that failed or timed out: Temporal repeats such a
// task, and on a busy machine there are some.
func (env *testEnv) acceptedEvents(id string) []*history.HistoryEvent {
	env.t.Helper()
	events := env.historyEvents(id)
	repeated := map[int64]bool{} // by event
	for _, event := range events {
		var task interface {
			GetScheduledEventId() int64
			GetStartedEventId() int64
		}
		switch event.GetEventType() {
		case enums.EVENT_TYPE_WORKFLOW_TASK_FAILED:
			task = event.GetWorkflowTaskFailedEventAttributes()
		case enums.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
			task = event.GetWorkflowTaskTimedOutEventAttributes()
		default:
			continue
		}
		repeated[event.GetEventId()] = true
		repeated[task.GetScheduledEventId()], repeated[task.GetStartedEventId()] = true, true
	}
	return slices.DeleteFunc(events, func(e *history.HistoryEvent) bool { return repeated[e.GetEventId()] })
}

func TestTheLifeOfALease(t *testing.T) {
	oneHost(t, "host").atOnce(map[string]func(*testEnv){
		"of a hundred concurrent checkouts one is granted": concurrentCheckouts,
		"it is renewed while its holder lives":             renewedLease,
		"it expires if nobody renews it, and is fenced":    unrenewedLease,
		"the worker is reset after it has expired":         resetAfterALease,
	})
}

func resetAfterALease(env *testEnv) {
	t := env.t
	s := echoSpec("reset", 1)
	s.Lease.OnExpiry = spec.ExpiryReset
	s.Health.Timeout = spec.Duration(waitTimeout) // a process that is not reset in time is replaced
	pool := env.startPool(s)
	before := env.waitState(pool, 0, lifecycle.Ready)
	lease := env.checkout(pool, tempool.CheckoutOptions{Holder: "me", TTL: time.Second, NoRenew: true})
	history := env.waitHistory(pool, 0, "a probe at its end", func(history []lifecycle.Transition) bool {
		return history[len(history)-1].Event == lifecycle.ProbePassed
	})
	require.Contains(t, history[len(history)-1].Reason, "process reset")
	after := env.waitState(pool, 0, lifecycle.Ready)
	require.Equal(t, before.PID, after.PID, "the same process")
	env.requireFenced("host", lease.ID+"~"+lease.Token)
	next := env.checkout(pool, tempool.CheckoutOptions{Holder: "you"})
	require.Greater(t, next.Seq, lease.Seq)
	require.Equal(t, lease.Incarnation, next.Incarnation)
}

// requireFenced requires that a gateway refuses calls under a lease that has ended, once it could find out about the
// lease.
func (env *testEnv) requireFenced(host, lease string) {
	env.t.Helper()
	client := env.gatewayClient(host)
	for deadline := time.Now().Add(waitTimeout); ; sleep(env.t, 50*time.Millisecond) {
		status, answer, code := post(env.t, client, "/v1/leases/"+lease+"/call/pid", "")
		if code == string(api.CodeUnavailable) && time.Now().Before(deadline) {
			continue
		}
		require.Equal(env.t, http.StatusConflict, status, answer)
		require.Equal(env.t, string(api.CodeLeaseFenced), code)
		return
	}
}

func unrenewedLease(env *testEnv) {
	t := env.t
	pool := env.startPool(echoSpec("expiry", 1))
	lease := env.checkout(pool, tempool.CheckoutOptions{Holder: "me", TTL: time.Second, NoRenew: true})
	env.waitLater(pool, "the worker has been replaced", lease.Incarnation)
	_, err := env.client.Renew(t.Context(), lease.ID, time.Minute)
	require.ErrorIs(t, err, api.ErrLeaseFenced)
	next := env.checkout(pool, tempool.CheckoutOptions{Holder: "you"})
	require.Greater(t, next.Seq, lease.Seq)
	require.Greater(t, next.Incarnation, lease.Incarnation)
	// The old holder's checkin changes nothing for the new one.
	require.NoError(t, env.client.Checkin(context.Background(), api.CheckinRequest{LeaseID: lease.ID}))
	require.Equal(t, next.ID, env.waitState(pool, 0, lifecycle.Busy).Lease.ID)
}

// A checkout whose caller leaves while no agent answers reaches the worker later, when nobody uses its lease.
func TestACheckoutWhoseCallerHasLeftCostsNoProcessAndHoldsNoWorker(t *testing.T) {
	env := newEnv(t)
	agent := env.startAgent("slow")
	s := echoSpec("left", 1)
	s.Lease.TTL = spec.Duration(5 * time.Second)
	pool := env.startPool(s)
	before := env.waitState(pool, 0, lifecycle.Ready)
	agent.freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := pool.CheckoutOnce(ctx, 0, tempool.CheckoutOptions{Holder: "impatient"})
	require.ErrorIs(t, err, api.ErrUnavailable)
	require.NoError(t, agent.cmd.Process.Signal(syscall.SIGCONT))
	// the worker must be free without the expiry of a lease that nobody has
	othersAreServed := func() {
		require.Eventually(t, func() bool {
			lease, err := pool.TryCheckout(t.Context(), tempool.CheckoutOptions{Holder: "patient", TTL: time.Hour})
			return err == nil && lease.Checkin(t.Context(), api.OutcomeOK) == nil
		}, waitTimeout, 100*time.Millisecond)
		for _, past := range env.history(pool, 0) {
			require.NotEqual(t, lifecycle.LeaseExpired, past.Event)
		}
	}
	othersAreServed()
	require.Equal(t, before.PID, env.waitState(pool, 0, lifecycle.Ready).PID)

	// Nobody takes the next request until its caller has left.
	agent.kill()
	ctx, leave := context.WithTimeout(t.Context(), time.Second)
	defer leave()
	_, err = env.client.CheckoutWorker(ctx, pool.Name(), 0, api.CheckoutRequest{Holder: "gone", AttemptID: "one"})
	require.Error(t, err)
	require.Eventually(t, func() bool {
		return env.hasEvent(api.WorkerWorkflowID(pool.Name(), 0), enums.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
	}, waitTimeout, 50*time.Millisecond)
	env.startAgent("slow")
	othersAreServed()
}
