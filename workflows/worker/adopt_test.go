package worker

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
)

// onOneHost starts all incarnations on host h, under epoch 1.
var onOneHost = map[int64]string{1: "h", 2: "h", 3: "h"}

// inherited says that epoch 2 has taken over incarnations of epoch 1.
func inherited(incarnations ...int64) api.EpochEnded {
	return api.EpochEnded{Host: "h", Epoch: 1, Reason: "the agent was started again", Kept: incarnations,
		NextAgent: &api.NextAgent{Epoch: 2, Endpoint: "unix:/new"}}
}

func (s *workerEnv) takenOver() (n int) {
	for _, kind := range s.events() {
		if kind == lifecycle.EventKind(lifecycle.TakenOver) {
			n++
		}
	}
	return n
}

func TestAWorkerContinuesWithAProcessThatTheNextAgentTookOver(t *testing.T) {
	s := newWorkerEnv(t)
	s.startOn(onOneHost)
	s.UpdateAt(time.Second, api.UpdateCheckout, api.CheckoutRequest{Holder: "me", TTLMS: 600_000})
	s.At(time.Minute, s.signal(api.SignalEpochEnded, inherited(1)))
	s.At(time.Minute+30*time.Second, s.signal(api.SignalEpochEnded, inherited(1))) // workers are notified twice
	s.At(2*time.Minute, func() {
		require.Equal(t, lifecycle.Busy, s.state().State)
		require.EqualValues(t, 1, s.state().Incarnation)
		require.Equal(t, 1, s.takenOver(), "%v", s.events())
		s.mu.Lock()
		require.Len(t, s.watches, 1, "the worker claims its process")
		s.mu.Unlock()
	})
	renewed := s.UpdateAt(2*time.Minute, api.UpdateRenew, api.RenewRequest{LeaseID: "t.0.1.1", TTLMS: 600_000})
	s.At(3*time.Minute, func() {
		require.Equal(t, "unix:/new", renewed.Value.(*api.Lease).Endpoint)
		require.EqualValues(t, 1, s.starts.Load())
	})
	// without a next agent
	s.At(4*time.Minute, s.signal(api.SignalEpochEnded, api.EpochEnded{Host: "h", Epoch: 2, Reason: "gone"}))
	s.At(5*time.Minute, func() {
		require.EqualValues(t, 2, s.state().Incarnation, "the process belongs to epoch 2 since")
	})
	s.runThrough(standalone())
}

// An agent that has left its processes to the next one takes no probe, and the next one may need two minutes.
func TestAProbeThatNoAgentTakesDoesNotEndAProcessThatWaitsForTheNextAgent(t *testing.T) {
	for name, comes := range map[string]bool{"an agent comes": true, "none does": false} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			s.startOn(onOneHost)
			var away atomic.Bool
			away.Store(true)
			s.slow = map[string]time.Duration{api.ActivityProbe: api.AgentAway}
			s.onProbe = func(r api.WatchRequest) (api.WatchResult, error) {
				if away.Load() && r.Incarnation == 1 {
					return api.WatchResult{}, temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
				}
				return api.WatchResult{Event: api.WatchProbePassed}, nil
			}
			if comes {
				s.At(2*time.Minute+50*time.Second, func() {
					away.Store(false)
					s.signal(api.SignalEpochEnded, inherited(1))()
				})
			}
			s.At(10*time.Minute, func() {
				require.Equal(t, lifecycle.Ready, s.state().State)
				if comes {
					require.EqualValues(t, 1, s.starts.Load(), "%v", s.events())
					require.Equal(t, 1, s.takenOver())
				} else {
					require.EqualValues(t, 2, s.starts.Load(), "it does not wait for ever")
				}
			})
			s.runThrough(rotating(func(sp *spec.Spec) { sp.Health.Checkpoint = spec.Duration(time.Minute) }))
		})
	}
}

func TestAWorkerIsPlacedAgainWhereItsProcessWasNotTakenOver(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*workerEnv)
		ended  api.EpochEnded
	}{
		"another incarnation": {func(*workerEnv) {}, inherited(7)},
		"no next agent":       {func(*workerEnv) {}, api.EpochEnded{Host: "h", Epoch: 1, Kept: []int64{1}}},
		"about to be replaced": {func(s *workerEnv) {
			s.slow = map[string]time.Duration{api.ActivityStop: time.Hour}
			s.At(30*time.Second, s.signal(api.SignalRestart, api.Order{Reason: "new files", InPlace: true}))
		}, inherited(1)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			s.startOn(onOneHost)
			c.before(s)
			s.At(time.Minute, s.signal(api.SignalEpochEnded, c.ended))
			s.At(2*time.Minute, func() {
				require.EqualValues(t, 2, s.state().Incarnation)
				require.Zero(t, s.takenOver())
				s.slow = nil
			})
			s.runThrough(standalone())
		})
	}
}

func TestAnExpiredLeaseIsResetByTheNextAgent(t *testing.T) {
	s := newWorkerEnv(t)
	s.startOn(onOneHost)
	s.slow = map[string]time.Duration{api.ActivityReset: 20 * time.Second}
	s.UpdateAt(time.Second, api.UpdateCheckout, api.CheckoutRequest{Holder: "me", TTLMS: 5_000})
	s.At(10*time.Second, func() {
		require.Equal(t, lifecycle.Degraded, s.state().State)
		s.env.SignalWorkflow(api.SignalEpochEnded, inherited(1))
	})
	s.At(time.Minute, func() {
		s.ready(1)
		require.Equal(t, 1, s.takenOver())
	})
	s.runThrough(resettable())
}

// The next agent gets the order again; what the one before has ended comes with its answer.
func TestASuspensionIsRepeatedToTheNextAgent(t *testing.T) {
	s := newWorkerEnv(t)
	s.startOn(onOneHost)
	s.onSuspend = func(r api.SuspendRequest) (api.SuspendResult, error) {
		return api.SuspendResult{FencedLease: api.FencedLease{LeaseID: r.LeaseID, CallsCut: 1,
			Checkin: &api.CheckinRequest{LeaseID: r.LeaseID, Usage: api.Usage{Requests: 2}}}}, nil
	}
	run := suspending(s)
	s.slow[api.ActivitySuspend] = time.Hour // the first agent leaves the order without an answer
	s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	s.At(2*time.Second, s.signal(api.SignalSuspend, api.Control{}))
	s.At(20*time.Second, func() {
		s.slow[api.ActivitySuspend] = time.Second
		s.env.SignalWorkflow(api.SignalEpochEnded, inherited(1))
	})
	s.At(time.Minute, func() {
		require.Equal(t, lifecycle.Suspended, s.state().State)
		require.EqualValues(t, 1, s.state().Incarnation)
		require.EqualValues(t, 1, s.metrics().CallsCut)
		require.EqualValues(t, 2, s.metrics().RequestsServed)
		require.Len(t, s.suspends, 1, "of the next agent")
		require.EqualValues(t, 1, s.suspends[0].Generation, "the same order")
		require.Equal(t, suspendedLease, s.suspends[0].LeaseID)
		require.Zero(t, s.suspends[0].Timeout, "drain_timeout is over")
	})
	s.runThrough(run)
}

// The agent before has not begun an order, and that is learned together with who has its process now: the next agent
// gets the order again.
func TestAnOrderThatFailedWithItsAgentIsGivenToTheNextOne(t *testing.T) {
	for name, c := range map[string]struct {
		run   func(s *workerEnv, order func() error) Run
		begin func(s *workerEnv)
	}{
		"suspend": {
			func(s *workerEnv, order func() error) Run {
				s.onSuspend = func(api.SuspendRequest) (api.SuspendResult, error) { return api.SuspendResult{}, order() }
				return suspending(s)
			},
			func(s *workerEnv) { s.env.SignalWorkflow(api.SignalSuspend, api.Control{}) },
		},
		"reset": {
			func(s *workerEnv, order func() error) Run {
				s.onReset = func(api.ResetRequest) (api.ResetResult, error) { return api.ResetResult{}, order() }
				return resettable()
			},
			func(s *workerEnv) { s.Update(api.UpdateCheckout, api.CheckoutRequest{Holder: "me", TTLMS: 5_000}) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			s.startOn(onOneHost)
			var orders atomic.Int64
			run := c.run(s, func() error {
				if orders.Add(1) > 1 {
					return nil
				}
				s.env.SignalWorkflowSkippingWorkflowTask(api.SignalEpochEnded, inherited(1))
				return temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
			})
			s.At(time.Second, func() { c.begin(s) })
			s.At(time.Minute, func() {
				require.EqualValues(t, 1, s.state().Incarnation, "%v", s.events())
				require.Equal(t, 1, s.takenOver())
				require.EqualValues(t, 2, orders.Load())
			})
			s.runThrough(run)
		})
	}
}

// TestWhatConcernsALiveProcessWaitsForTheNextAgentOfItsHost: an agent that has left its processes to the next one takes
// no order meanwhile.
func TestWhatConcernsALiveProcessWaitsForTheNextAgentOfItsHost(t *testing.T) {
	waits, script := map[string]time.Duration{}, workflowtest.NewScript()
	script.Scheduled = func(name string, o workflow.ActivityOptions) { waits[name] = o.ScheduleToStartTimeout }
	env := script.NewEnvironment(nil)
	for _, name := range []string{api.ActivityWatch, api.ActivityProbe, api.ActivityReset, api.ActivitySuspend,
		api.ActivityResume} {
		env.RegisterActivityWithOptions(func(context.Context, any) error { return nil },
			activity.RegisterOptions{Name: name})
	}
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		run := standalone()
		w := newWorker(ctx, &run)
		w.activities.watch(api.WatchRequest{})
		w.activities.probe()
		w.activities.reset("lease")
		w.activities.suspend(api.SuspendRequest{})
		w.activities.resume(api.ResumeRequest{})
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
	require.Len(t, waits, 5)
	for activity, wait := range waits {
		require.Greater(t, wait, 2*time.Minute+api.HostHeartbeatTimeout, activity)
	}
}
