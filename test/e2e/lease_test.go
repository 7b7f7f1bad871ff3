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

func TestOfAHundredCheckoutsOfOneWorkerOneIsGranted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("race")
	pool := w.start(echo("race", 1))
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
	require.Equal(t, granted[0].ID, w.state(pool, 0, lifecycle.Busy).Lease.ID)
}

// pairs is how many leases TestManyLeasesPassThroughContinueAsNew takes; make soak takes ten thousand.
var pairs = flag.Int("pairs", 2_000, "how many checkout–checkin pairs one worker has to pass")

func TestManyLeasesPassThroughContinueAsNew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("many")
	s := echo("many", 1)
	s.Rotation.MaxRequests = 0
	pool := w.start(s)
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
		require.Equal(t, seq+1, lease.Seq, "no lease is lost or doubled")
		seq = lease.Seq
		require.NoError(t, w.client.Checkin(t.Context(), api.CheckinRequest{LeaseID: lease.ID, Usage: api.Usage{Requests: 1, TotalMS: 1}}))
	}
	st := w.state(pool, 0, lifecycle.Ready)
	require.EqualValues(t, 1, st.Incarnation, "one process served them all")
	view, err := pool.Workers(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, *pairs, view.Workers[0].LeasesGranted)
	require.EqualValues(t, *pairs, view.Workers[0].RequestsServed)
	require.Zero(t, view.Workers[0].LeasesRefused)
	runs := w.runs(api.WorkerWorkflowID("many", 0))
	require.Greater(t, runs, 1)
	t.Logf("%d pairs through %d runs; refusals: %v", *pairs, runs, refusals)
}

// runs counts the runs of a workflow that can be found.
func (w *world) runs(id string) (n int) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { // visibility lags behind
		answer, err := w.client.Temporal().CountWorkflow(w.t.Context(), countOf(w.client.Namespace(), fmt.Sprintf("WorkflowId = '%s'", id)))
		n = int(answer.GetCount())
		return err == nil && n > 0
	}, patience, 100*time.Millisecond)
	return n
}

// events counts the history of a workflow's current run, and its events by type.
func (w *world) events(id string) (n int, byType map[enums.EventType]int) {
	w.t.Helper()
	byType = map[enums.EventType]int{}
	iterator := w.client.Temporal().GetWorkflowHistory(w.t.Context(), id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iterator.HasNext() {
		event, err := iterator.Next()
		require.NoError(w.t, err)
		n++
		byType[event.GetEventType()]++
	}
	return n, byType
}

func TestALeaseCostsAtMostNineEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("cost")
	pool := w.start(echo("cost", 1))
	id := api.WorkerWorkflowID("cost", 0)
	before, _ := w.events(id)
	const leases = 100
	for range leases {
		lease, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "me"})
		require.NoError(t, err)
		require.NoError(t, w.client.Checkin(t.Context(), api.CheckinRequest{LeaseID: lease.ID}))
		w.state(pool, 0, lifecycle.Ready)
	}
	after, byType := w.events(id)
	t.Logf("%d leases wrote %d events: %.2f each", leases, after-before, float64(after-before)/leases)
	require.LessOrEqual(t, after-before, 9*leases, "%v", byType)
}

func TestAnIdleWorkerCostsAtMostFourThousandEventsADay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("idle")
	s := echo("idle", 1)
	everyDay := 24 * time.Hour / s.Health.Checkpoint.D() // checkpoints in a day, by the default spec
	require.NoError(t, s.Health.Checkpoint.UnmarshalText([]byte("1s")))
	w.start(s)
	id := api.WorkerWorkflowID("idle", 0)
	probes := func() (events, probes int) {
		events, byType := w.events(id)
		return events, byType[enums.EVENT_TYPE_ACTIVITY_TASK_COMPLETED]
	}
	var firstEvents, firstProbes, events, checkpoints int
	require.Eventually(t, func() bool { firstEvents, firstProbes = probes(); return firstProbes >= 2 }, patience, 50*time.Millisecond)
	require.Eventually(t, func() bool { events, checkpoints = probes(); return checkpoints >= firstProbes+10 }, patience, 50*time.Millisecond)
	each := float64(events-firstEvents) / float64(checkpoints-firstProbes)
	perDay := each * float64(everyDay)
	t.Logf("%.1f events for each checkpoint, %d checkpoints a day: %.0f events", each, everyDay, perDay)
	require.LessOrEqual(t, perDay+500, 4000.0, "with 500 to spare for the start, the end and the Watch between them")
}

func TestAWorkerIsResetAfterALeaseThatExpiredWhereTheSpecSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("reset")
	s := echo("reset", 1)
	s.Lease.OnExpiry = spec.ExpiryReset
	pool := w.start(s)
	before := w.state(pool, 0, lifecycle.Ready)
	lease, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "me", TTL: time.Second, NoRenew: true})
	require.NoError(t, err)
	var history []lifecycle.Transition
	require.Eventually(t, func() bool {
		history, err = pool.History(t.Context(), 0)
		return err == nil && history[len(history)-1].Event == lifecycle.ProbePassed
	}, patience, 50*time.Millisecond)
	require.Contains(t, history[len(history)-1].Reason, "process reset")
	after := w.state(pool, 0, lifecycle.Ready)
	require.Equal(t, before.PID, after.PID, "the same process")
	status, _, code := post(t, w.over("reset"), "/v1/leases/"+lease.ID+"/call/pid", "")
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, string(api.CodeLeaseFenced), code)
	next, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "you"})
	require.NoError(t, err)
	require.Greater(t, next.Seq, lease.Seq)
	require.Equal(t, lease.Incarnation, next.Incarnation)
}

func TestALeaseThatIsNotRenewedExpiresAndIsFenced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("expiry")
	pool := w.start(echo("expiry", 1))
	lease, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "me", TTL: time.Second, NoRenew: true})
	require.NoError(t, err)
	w.until(pool, "the worker has been replaced", func(v api.PoolWorkers) bool {
		return v.Ready == 1 && v.Workers[0].Incarnation == 2
	})
	_, err = w.client.Renew(t.Context(), lease.ID, time.Minute)
	require.ErrorIs(t, err, api.ErrLeaseFenced)
	next, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "you"})
	require.NoError(t, err)
	require.Greater(t, next.Seq, lease.Seq)
	require.Greater(t, next.Incarnation, lease.Incarnation)
	// The old holder's checkin changes nothing for the new one.
	require.NoError(t, w.client.Checkin(context.Background(), api.CheckinRequest{LeaseID: lease.ID}))
	require.Equal(t, next.ID, w.state(pool, 0, lifecycle.Busy).Lease.ID)
}
