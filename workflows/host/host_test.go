package host

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/emit"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
)

// fleet is a host's workflow on a clock that skips time, and the agents that join it.
type fleet struct {
	t   *testing.T
	env *testsuite.TestWorkflowEnvironment
	*workflowtest.Script
	// liveness says how the liveness of an epoch ends; without an entry it continues.
	liveness map[int64]func(ctx context.Context) error
	started  []api.LivenessRequest // to the minute
	drained  []bool                // the drains and undrains that its agents got
	emitted  []string              // the host's events and their epochs
}

// workflow is Workflow with an agent that takes its events.
func (f *fleet) workflow(ctx workflow.Context, run Run) error {
	return Workflow(emit.With(ctx, emit.Sink{Emit: func(eventType, source string, _ time.Time, data any) {
		f.emitted = append(f.emitted, fmt.Sprint(source, " ", eventType, " ", data.(api.HostEvent).Epoch))
	}}), run)
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, Script: workflowtest.NewScript(), liveness: map[int64]func(context.Context) error{}}
	f.env = f.NewEnvironment(nil)
	f.env.SetStartTime(t0)
	f.Begin = t0
	f.StartRun(f.env)
	f.env.RegisterWorkflowWithOptions(f.workflow, workflow.RegisterOptions{Name: api.WorkflowHost})
	f.env.RegisterActivityWithOptions(func(ctx context.Context, r api.LivenessRequest) error {
		r.At = r.At.Round(time.Minute)
		f.started = append(f.started, r)
		if end := f.liveness[r.Epoch]; end != nil {
			return end(ctx)
		}
		return activity.ErrResultPending
	}, activity.RegisterOptions{Name: api.ActivityHostLiveness})
	f.env.RegisterActivityWithOptions(func(_ context.Context, draining bool) error {
		f.drained = append(f.drained, draining)
		return nil
	}, activity.RegisterOptions{Name: api.ActivityDrainHost})
	return f
}

// joinAt announces an agent at a time.
func (f *fleet) joinAt(at time.Duration, r api.JoinRequest) *workflowtest.UpdateResult {
	return f.UpdateAt(at, api.UpdateJoin, r)
}

// granted is the result of a join that got an epoch.
func granted(epoch int64) *workflowtest.UpdateResult {
	return &workflowtest.UpdateResult{Value: api.JoinResult{Epoch: epoch}}
}

const keepTime = 2 * time.Minute

// leaveKeeping ends an epoch whose processes wait for the next agent.
func (f *fleet) leaveKeeping(epoch int64) {
	f.update(api.UpdateLeave, api.LeaveRequest{Epoch: epoch, Kept: kept, KeepMS: keepTime.Milliseconds()})
}

func (f *fleet) leave(epoch int64) { f.update(api.UpdateLeave, api.LeaveRequest{Epoch: epoch}) }

// update sends an update that must succeed.
func (f *fleet) update(name string, request any) {
	result := f.Update(name, request)
	f.t.Cleanup(func() { require.NoError(f.t, errors.Join(result.Rejected, result.Err)) })
}

func (f *fleet) status() api.HostStatus {
	return workflowtest.Query[api.HostStatus](f.t, f.Script, api.QueryStatus)
}

func (f *fleet) run(run Run) error {
	run.Host = "gpu-1"
	f.env.ExecuteWorkflow(api.WorkflowHost, run)
	f.RequireDone(f.t)
	require.True(f.t, f.env.IsWorkflowCompleted())
	return f.env.GetWorkflowError()
}

func TestOneAgentHoldsAHostIDAtATime(t *testing.T) {
	f := newFleet(t)
	first := f.joinAt(0, api.JoinRequest{Instance: "a", StateID: "disk-a"})
	early := f.joinAt(time.Minute, api.JoinRequest{Instance: "b", StateID: "disk-b"})
	f.At(2*time.Minute, func() {
		require.Equal(t, api.HostUp, f.status().State)
		f.leave(1)
	})
	late := f.joinAt(3*time.Minute, api.JoinRequest{Instance: "b", StateID: "disk-b"})
	f.At(4*time.Minute, func() { f.leave(2) })
	require.NoError(t, f.run(Run{}), "a host without an agent is forgotten in the end")
	require.Equal(t, granted(1), first)
	require.ErrorContains(t, early.Rejected, `host id "gpu-1" is held by agent a`)
	require.Equal(t, granted(2), late)
	require.Equal(t, []string{
		"/hosts/gpu-1 host.joined 1", "/hosts/gpu-1 host.left 1", "/hosts/gpu-1 host.joined 2", "/hosts/gpu-1 host.left 2",
	}, f.emitted)
	require.Equal(t, []api.LivenessRequest{{Epoch: 1, Instance: "a", At: t0},
		{Epoch: 2, Instance: "b", At: t0.Add(3 * time.Minute)}}, f.started)
}

func TestASilentAgentIsLostAndAnotherMayJoin(t *testing.T) {
	f := newFleet(t)
	f.liveness[1] = func(context.Context) error { return temporal.NewHeartbeatTimeoutError() }
	f.joinAt(0, api.JoinRequest{Instance: "a", StateID: "disk-a"})
	f.At(time.Minute, func() {
		require.Equal(t, api.HostLost, f.status().State)
	})
	other := f.joinAt(time.Minute, api.JoinRequest{Instance: "b", StateID: "disk-b"})
	f.At(2*time.Minute, func() { f.leave(2) })
	require.NoError(t, f.run(Run{}))
	require.Equal(t, granted(2), other)
	require.Equal(t, []string{
		"/hosts/gpu-1 host.joined 1", "/hosts/gpu-1 host.lost 1", "/hosts/gpu-1 host.joined 2", "/hosts/gpu-1 host.left 2",
	}, f.emitted)
}

func TestAnAgentWhoseLivenessFailsIsSuspectThenLost(t *testing.T) {
	f := newFleet(t)
	f.liveness[1] = func(context.Context) error { return errors.New("worker is shutting down") }
	f.joinAt(0, api.JoinRequest{Instance: "a", StateID: "disk"})
	f.At(time.Second, func() { require.Equal(t, api.HostSuspect, f.status().State) })
	f.At(2*time.Second, func() {
		delete(f.liveness, 1)
	})
	again := f.joinAt(2*time.Second, api.JoinRequest{Instance: "a", StateID: "disk", Epoch: 1})
	f.At(time.Minute, func() {
		require.Equal(t, api.HostUp, f.status().State)
		f.leave(1)
	})
	require.NoError(t, f.run(Run{}))
	require.Equal(t, granted(1), again, "it joins again in time and loses nothing")
	require.Len(t, f.started, 2)

	f = newFleet(t)
	f.liveness[1] = func(context.Context) error { return errors.New("worker is shutting down") }
	f.joinAt(0, api.JoinRequest{Instance: "a", StateID: "disk"})
	f.At(api.HostGrace+time.Second, func() { require.Equal(t, api.HostLost, f.status().State) })
	require.NoError(t, f.run(Run{}))
}

func TestAHostContinuesAsNewAtLeastDaily(t *testing.T) {
	f := newFleet(t)
	f.joinAt(0, api.JoinRequest{Instance: "a", StateID: "disk"})
	err := f.run(Run{})
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, err, &again)
	var next Run
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &next))
	require.Equal(t, "a", next.Instance)
	require.Equal(t, "disk", next.StateID)
	require.Equal(t, int64(1), next.Epoch)

	f = newFleet(t)
	f.At(time.Minute, func() {
		require.Equal(t, api.HostUp, f.status().State)
		require.Equal(t, []api.LivenessRequest{{Epoch: 1, Instance: "a", At: t0}}, f.started,
			"the next run has a liveness of its own")
		f.leave(1)
	})
	require.NoError(t, f.run(next))
}

func TestAHostContinuesAsNewHoweverLittleChanges(t *testing.T) {
	f := newFleet(t)
	f.joinAt(0, api.JoinRequest{Instance: "a", StateID: "disk"})
	f.At(time.Minute, func() {
		f.env.SetContinueAsNewSuggested(true)
		f.Update(api.UpdateJoin, api.JoinRequest{Instance: "a", StateID: "disk", Epoch: 1})
	})
	err := f.run(Run{})
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, err, &again)
	require.Equal(t, t0.Add(time.Minute), f.env.Now().UTC().Round(time.Minute), "at once, not a day later")
}

func TestAHostDrainsUntilItIsTold(t *testing.T) {
	f := newFleet(t)
	drain := func(reason string) { f.update(api.UpdateDrainHost, api.DrainHostRequest{Reason: reason}) }
	first := f.joinAt(0, api.JoinRequest{Instance: "a", StateID: "disk"})
	f.At(time.Minute, func() { drain("new kernel") })
	f.At(2*time.Minute, func() {
		require.Equal(t, "new kernel", f.status().Draining)
		f.leave(1)
	})
	second := f.joinAt(3*time.Minute, api.JoinRequest{Instance: "b", StateID: "disk"})
	f.At(4*time.Minute, func() { f.leave(2) })
	f.At(5*time.Minute, func() { drain("") })
	third := f.joinAt(6*time.Minute, api.JoinRequest{Instance: "c", StateID: "disk"})
	f.At(7*time.Minute, func() { f.leave(3) })
	require.NoError(t, f.run(Run{}))
	require.Equal(t, []bool{true}, f.drained, "a host without an agent tells nobody")
	require.Equal(t, granted(1), first)
	require.Equal(t, api.JoinResult{Epoch: 2, Draining: true}, second.Value)
	require.Equal(t, granted(3), third)
}
