package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

func TestOfAHundredConcurrentCheckoutsOneIsGranted(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("race")
	pool := env.startPool(echoSpec("race", 1))
	var mu sync.Mutex
	var granted []*tempool.Lease
	codes := map[api.Code]int{}
	var group sync.WaitGroup
	begin := make(chan struct{})
	for i := range 100 {
		group.Go(func() {
			<-begin
			lease, err := pool.CheckoutOnce(t.Context(), 0, tempool.CheckoutOptions{Holder: fmt.Sprint("holder ", i)})
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
var pairs = flag.Int("pairs", 2_000, "number of checkout and checkin pairs on one worker")

func TestManyLeasesPassThroughContinueAsNew(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("many")
	s := echoSpec("many", 1)
	s.Rotation.MaxRequests = 0
	pool := env.startPool(s)
	var seq int64
	refusals := map[api.Code]int{}
	for i := range *pairs {
		var lease *tempool.Lease
		for lease == nil {
			var err error
			lease, err = pool.CheckoutOnce(t.Context(), 0, tempool.CheckoutOptions{Holder: "me", RequestID: fmt.Sprint("request ", i)})
			if err != nil {
				require.True(t, api.CodeOf(err).Retryable(), "checkout %d: %v", i, err)
				refusals[api.CodeOf(err)]++
			}
		}
		require.Greater(t, lease.Seq, seq, "no lease is granted twice")
		seq = lease.Seq
		require.NoError(t, env.client.Checkin(t.Context(), api.CheckinRequest{LeaseID: lease.ID, Usage: api.Usage{Requests: 1, TotalMS: 1}}))
	}
	st := env.waitState(pool, 0, lifecycle.Ready)
	require.EqualValues(t, 1, st.Incarnation, "one process served them all")
	view, err := pool.Workers(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, *pairs, view.Workers[0].LeasesGranted)
	require.EqualValues(t, *pairs, view.Workers[0].RequestsServed)
	require.Zero(t, view.Workers[0].LeasesRefused)
	runs := env.countRuns(api.WorkerWorkflowID("many", 0))
	if *pairs >= 1_000 { // else the history is too short
		require.Greater(t, runs, 1)
	}
	t.Logf("%d pairs through %d runs; refusals: %v", *pairs, runs, refusals)
}

// countRuns counts the runs of a workflow in visibility.
func (env *testEnv) countRuns(id string) (n int) {
	env.t.Helper()
	require.Eventually(env.t, func() bool { // visibility lags
		answer, err := env.client.Temporal().CountWorkflow(env.t.Context(), countOf(env.client.Namespace(), fmt.Sprintf("WorkflowId = '%s'", id)))
		n = int(answer.GetCount())
		return err == nil && n > 0
	}, waitTimeout, 100*time.Millisecond)
	return n
}

// countEvents counts the events of a workflow's current run, in total and by type.
func (env *testEnv) countEvents(id string) (n int, byType map[enums.EventType]int) {
	env.t.Helper()
	byType = map[enums.EventType]int{}
	iterator := env.client.Temporal().GetWorkflowHistory(env.t.Context(), id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iterator.HasNext() {
		event, err := iterator.Next()
		require.NoError(env.t, err)
		n++
		byType[event.GetEventType()]++
	}
	return n, byType
}

func TestALeaseCostsAtMostNineEvents(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("cost")
	pool := env.startPool(echoSpec("cost", 1))
	id := api.WorkerWorkflowID("cost", 0)
	before, _ := env.countEvents(id)
	const leases = 100
	for range leases {
		lease, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "me"})
		require.NoError(t, err)
		require.NoError(t, env.client.Checkin(t.Context(), api.CheckinRequest{LeaseID: lease.ID}))
		env.waitState(pool, 0, lifecycle.Ready)
	}
	after, byType := env.countEvents(id)
	after -= 3 * byType[enums.EVENT_TYPE_WORKFLOW_TASK_FAILED] // a task that the server made fail, and its repetition
	t.Logf("%d leases wrote %d events: %.2f each", leases, after-before, float64(after-before)/leases)
	require.LessOrEqual(t, after-before, 9*leases, "%v", byType)
}

func TestAnIdleWorkerCostsAtMostFourThousandEventsADay(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("idle")
	s := echoSpec("idle", 1)
	everyDay := 24 * time.Hour / s.Health.Checkpoint.D() // checkpoints per day with the default spec
	require.NoError(t, s.Health.Checkpoint.UnmarshalText([]byte("1s")))
	env.startPool(s)
	id := api.WorkerWorkflowID("idle", 0)
	probes := func() (events, probes int) {
		events, byType := env.countEvents(id)
		return events, byType[enums.EVENT_TYPE_ACTIVITY_TASK_COMPLETED]
	}
	var firstEvents, firstProbes, events, checkpoints int
	require.Eventually(t, func() bool { firstEvents, firstProbes = probes(); return firstProbes >= 2 }, waitTimeout, 50*time.Millisecond)
	require.Eventually(t, func() bool { events, checkpoints = probes(); return checkpoints >= firstProbes+10 }, waitTimeout, 50*time.Millisecond)
	each := float64(events-firstEvents) / float64(checkpoints-firstProbes)
	perDay := each * float64(everyDay)
	t.Logf("%.1f events for each checkpoint, %d checkpoints a day: %.0f events", each, everyDay, perDay)
	require.LessOrEqual(t, perDay+500, 4000.0, "500 events remain for starts and stops")
}

func TestAWorkerIsResetAfterAnExpiredLease(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("reset")
	s := echoSpec("reset", 1)
	s.Lease.OnExpiry = spec.ExpiryReset
	pool := env.startPool(s)
	before := env.waitState(pool, 0, lifecycle.Ready)
	lease, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "me", TTL: time.Second, NoRenew: true})
	require.NoError(t, err)
	var history []lifecycle.Transition
	require.Eventually(t, func() bool {
		history, err = pool.History(t.Context(), 0)
		return err == nil && history[len(history)-1].Event == lifecycle.ProbePassed
	}, waitTimeout, 50*time.Millisecond)
	require.Contains(t, history[len(history)-1].Reason, "process reset")
	after := env.waitState(pool, 0, lifecycle.Ready)
	require.Equal(t, before.PID, after.PID, "the same process")
	status, _, code := post(t, env.gatewayClient("reset"), "/v1/leases/"+lease.ID+"~"+lease.Token+"/call/pid", "")
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, string(api.CodeLeaseFenced), code)
	next, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "you"})
	require.NoError(t, err)
	require.Greater(t, next.Seq, lease.Seq)
	require.Equal(t, lease.Incarnation, next.Incarnation)
}

func TestAnUnrenewedLeaseExpiresAndIsFenced(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("expiry")
	pool := env.startPool(echoSpec("expiry", 1))
	lease, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "me", TTL: time.Second, NoRenew: true})
	require.NoError(t, err)
	env.waitFor(pool, "the worker has been replaced", func(v api.PoolWorkers) bool {
		return v.Ready == 1 && v.Workers[0].Incarnation == 2
	})
	_, err = env.client.Renew(t.Context(), lease.ID, time.Minute)
	require.ErrorIs(t, err, api.ErrLeaseFenced)
	next, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "you"})
	require.NoError(t, err)
	require.Greater(t, next.Seq, lease.Seq)
	require.Greater(t, next.Incarnation, lease.Incarnation)
	// The old holder's checkin changes nothing for the new one.
	require.NoError(t, env.client.Checkin(context.Background(), api.CheckinRequest{LeaseID: lease.ID}))
	require.Equal(t, next.ID, env.waitState(pool, 0, lifecycle.Busy).Lease.ID)
}
