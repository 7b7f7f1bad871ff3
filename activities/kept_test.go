package activities_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

// nextHost is the host of the next agent, which has taken over the process of a host that has released it.
func nextHost(t *testing.T, o *observedHost, p *process.Process) (*observedHost, process.Kept) {
	t.Helper()
	o.Release()
	require.Empty(t, o.reported, "a worker whose process is handed over is notified of nothing")
	kept := process.Kept{Process: p, Note: o.Note(p)}
	next := observe(t, &activities.Host{
		ID: "h", Processes: o.Processes, Observer: noObserver{}, Logger: o.Logger, DataPlane: idleDataPlane{},
		Epoch: func() int64 { return 2 },
	}, o.request)
	require.NoError(t, next.Resume(kept))
	return next, kept
}

func TestAProcessThatItsWorkerDoesNotClaimIsKilledAndTheNextAgentReportsItsExit(t *testing.T) {
	o := newObservedHost(t)
	next, kept := nextHost(t, o, o.start())
	next.EndUnclaimed(t.Context(), []process.Kept{kept}, time.Millisecond)
	e := next.next()
	require.Equal(t, api.WatchExited, e.Event)
	require.Contains(t, e.Reason, "did not claim it")
	next.WaitMonitors()
	require.Empty(t, o.reported)
}

func TestAProcessThatItsWorkerClaimsLives(t *testing.T) {
	o := newObservedHost(t)
	next, kept := nextHost(t, o, o.start())
	_, err := next.Watch(t.Context(), api.WatchRequest{Process: o.request.Process, Health: kept.Spec().Health})
	require.NoError(t, err)
	next.EndUnclaimed(t.Context(), []process.Kept{kept}, time.Millisecond)
	require.NoError(t, kept.Probe(t.Context()))
	require.Empty(t, next.reported)
}

func TestANoteOfAnotherReleaseIsRefused(t *testing.T) {
	o := newObservedHost(t)
	p := o.start()
	err := o.Resume(process.Kept{Process: p, Note: json.RawMessage(`{"other":1}`)})
	require.ErrorContains(t, err, "left no instructions to observe p/1")
}

// rememberingDataPlane is a gateway that has a suspension, and knows a lease.
type rememberingDataPlane struct{ idleDataPlane }

func (rememberingDataPlane) Lease(string, int64) *api.Lease {
	return &api.Lease{ID: "p.1.3.7", TTLMS: 1000}
}

// resumedDataPlane is the gateway of the next agent.
type resumedDataPlane struct {
	idleDataPlane
	resumed func(*api.Suspension, *api.Lease)
}

func (r resumedDataPlane) Resume(_ *process.Process, s *api.Suspension, l *api.Lease) {
	r.resumed(s, l)
}

func (rememberingDataPlane) Suspension(string, int64) *api.Suspension {
	return &api.Suspension{Generation: 3, FencedLease: api.FencedLease{CallsCut: 1}}
}

// A closed gateway has forgotten the process: what it knew is taken down before.
func TestWhatTheGatewayKnowsIsHandedOver(t *testing.T) {
	o := newObservedHost(t)
	o.DataPlane = rememberingDataPlane{}
	p, served := o.start(), api.Usage{Requests: 3, Failed: 1, TotalMS: 7}
	p.Served().Restore(served)
	usage := o.Release()
	require.Equal(t, []api.ProcessUsage{{Process: o.request.Process, Usage: served}}, usage)
	kept := process.Kept{Process: p, Note: o.Note(p)}
	p.Served().Restore(api.Usage{})
	resumed := false
	o.DataPlane = resumedDataPlane{resumed: func(suspended *api.Suspension, lease *api.Lease) {
		resumed = true
		require.Equal(t, served, p.Served().Usage())
		require.Equal(t, rememberingDataPlane{}.Suspension("p/1", 3), suspended)
		require.Equal(t, rememberingDataPlane{}.Lease("p/1", 3), lease)
	}}
	require.NoError(t, o.Resume(kept))
	require.True(t, resumed)
}

// heldSuspensions is a gateway whose clients do not return their leases.
type heldSuspensions struct {
	idleDataPlane
	asked    chan struct{}
	returned *atomic.Bool
}

func (h heldSuspensions) Suspend(ctx context.Context, _ api.SuspendRequest) api.SuspendResult {
	close(h.asked)
	<-ctx.Done()
	h.returned.Store(true)
	return api.SuspendResult{}
}

// A workflow would believe an agent that no longer has the process: that its lease was returned, or that its frozen
// tree runs.
func TestAnAgentThatHandsAProcessOverLeavesOrdersToTheNextOne(t *testing.T) {
	o := newObservedHost(t)
	held := heldSuspensions{asked: make(chan struct{}), returned: new(atomic.Bool)}
	o.DataPlane = held
	o.request.Spec.Pool.OnSuspend = spec.SuspendFreeze
	p := o.start()
	order := api.SuspendRequest{Process: o.request.Process, Generation: 1, LeaseID: "p.1.3.1",
		Timeout: spec.Duration(time.Hour)}
	ended := make(chan error, 1)
	go func() {
		_, err := o.Suspend(t.Context(), order)
		ended <- err
	}()
	<-held.asked
	o.Release()
	require.True(t, held.returned.Load(), "Release returns while an order is under way")
	select {
	case err := <-ended:
		require.ErrorIs(t, err, activity.ErrResultPending, "the order is not carried out")
	case <-time.After(waitTimeout):
		require.Fail(t, "the order does not end")
	}
	require.False(t, p.Frozen())
	_, err := o.Suspend(t.Context(), order)
	require.ErrorIs(t, err, activity.ErrResultPending)

	require.NoError(t, p.Freeze(1))
	_, err = o.EndSuspension(t.Context(), api.ResumeRequest{Process: order.Process, Generation: 2})
	require.ErrorIs(t, err, activity.ErrResultPending)
	require.True(t, p.Frozen(), "it is handed over as it is")
	watch := api.WatchRequest{Process: order.Process, Health: p.Spec().Health}
	_, err = o.Watch(t.Context(), watch)
	require.ErrorIs(t, err, activity.ErrResultPending)
	_, err = o.Probe(t.Context(), watch)
	require.ErrorIs(t, err, activity.ErrResultPending)
	_, err = o.Reset(t.Context(), api.ResetRequest{Process: order.Process, Timeout: spec.Duration(time.Minute)})
	require.ErrorIs(t, err, activity.ErrResultPending)
}
