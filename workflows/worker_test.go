package workflows

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// stage is a host that exists only in the test: it hands out processes and does what the script says.
type stage struct {
	env    *testsuite.TestWorkflowEnvironment
	starts int64
	stops  int64
	start  func(r tempool.StartRequest) (tempool.StartResult, error)
	watch  func(ctx context.Context, r tempool.WatchRequest) (tempool.WatchResult, error)
	probe  func(r tempool.WatchRequest) (tempool.ProbeResult, error)
	stop   func(r tempool.StopRequest) (tempool.StopResult, error)
	drain  func(r tempool.DrainRequest) (tempool.DrainResult, error)
}

func testSpec() spec.Spec {
	s := spec.Default()
	s.Pool.Name = "t"
	s.Pool.Command = []string{"true"}
	return s
}

func newStage(t *testing.T) *stage {
	var suite testsuite.WorkflowTestSuite
	s := &stage{env: suite.NewTestWorkflowEnvironment()}
	s.env.SetTestTimeout(20 * time.Second)
	s.env.RegisterWorkflowWithOptions(Worker, workflow.RegisterOptions{Name: tempool.WorkflowWorker})
	register := func(name string, f any) { s.env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name}) }
	register(tempool.ActivityAwaitRoom, func(context.Context, tempool.Process) (tempool.AwaitRoomResult, error) {
		return tempool.AwaitRoomResult{Host: "h"}, nil
	})
	register(tempool.ActivityStart, func(_ context.Context, r tempool.StartRequest) (tempool.StartResult, error) {
		s.starts++
		if s.start != nil {
			return s.start(r)
		}
		return tempool.StartResult{Host: "h", PID: 1000 + int(r.Incarnation), Endpoint: "unix:/x"}, nil
	})
	register(tempool.ActivityWatch, func(ctx context.Context, r tempool.WatchRequest) (tempool.WatchResult, error) {
		if s.watch != nil {
			return s.watch(ctx, r)
		}
		<-ctx.Done()
		return tempool.WatchResult{}, ctx.Err()
	})
	register(tempool.ActivityProbe, func(_ context.Context, r tempool.WatchRequest) (tempool.ProbeResult, error) {
		if s.probe != nil {
			return s.probe(r)
		}
		return tempool.ProbeResult{Healthy: true}, nil
	})
	register(tempool.ActivityDrain, func(_ context.Context, r tempool.DrainRequest) (tempool.DrainResult, error) {
		if s.drain != nil {
			return s.drain(r)
		}
		return tempool.DrainResult{Drained: true}, nil
	})
	register(tempool.ActivityStop, func(_ context.Context, r tempool.StopRequest) (tempool.StopResult, error) {
		s.stops++
		if s.stop != nil {
			return s.stop(r)
		}
		return tempool.StopResult{Exit: lifecycle.Exit{Interrupted: true}, Reason: "stopped in good order"}, nil
	})
	return s
}

func (s *stage) run(run WorkerRun) { s.env.ExecuteWorkflow(tempool.WorkflowWorker, run) }

func (s *stage) state(t *testing.T) (st tempool.WorkerState) {
	t.Helper()
	value, err := s.env.QueryWorkflow(tempool.QueryState)
	require.NoError(t, err)
	require.NoError(t, value.Get(&st))
	return st
}

func (s *stage) history(t *testing.T) (h []lifecycle.Transition) {
	t.Helper()
	value, err := s.env.QueryWorkflow(tempool.QueryHistory)
	require.NoError(t, err)
	require.NoError(t, value.Get(&h))
	return h
}

func orphan() WorkerRun { return WorkerRun{Pool: "t", Slot: 0, Spec: testSpec(), SpecVersion: 1, Orphan: true} }

func TestAWorkerStartsServesAndEndsWhenCancelled(t *testing.T) {
	s := newStage(t)
	s.env.RegisterDelayedCallback(func() {
		st := s.state(t)
		require.Equal(t, lifecycle.Ready, st.State)
		require.EqualValues(t, 1, st.Incarnation)
		require.Equal(t, 1001, st.PID)
		s.env.CancelWorkflow()
	}, time.Second)
	s.run(orphan())
	require.True(t, s.env.IsWorkflowCompleted())
	require.NoError(t, s.env.GetWorkflowError())
	require.Equal(t, lifecycle.Stopped, s.state(t).State)
	require.EqualValues(t, 1, s.stops)
}
