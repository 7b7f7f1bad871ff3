package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// TestAnOverdueRunContinuesWhateverIsUnderWay has the history of a run grow to twice the suggested length while
// something is under way that a run usually waits for.
func TestAnOverdueRunContinuesWhateverIsUnderWay(t *testing.T) {
	checkout := api.CheckoutRequest{Holder: "alice", TTLMS: time.Hour.Milliseconds()}
	for name, c := range map[string]struct {
		slow    map[string]time.Duration
		spec    func(*spec.Spec)
		script  func(*workerEnv)
		overdue time.Duration
		checkAt time.Duration
		check   func(*testing.T, *workerEnv, api.WorkerState)
	}{
		"a start": {
			slow: map[string]time.Duration{api.ActivityStart: time.Minute}, overdue: 30 * time.Second,
			checkAt: 100 * time.Second,
			check: func(t *testing.T, s *workerEnv, st api.WorkerState) {
				require.Equal(t, lifecycle.Ready, st.State)
				require.Greater(t, st.Incarnation, int64(1), "the number of the start that was given up is not used again")
				require.Empty(t, s.metrics().RestartsByReason)
				require.Zero(t, s.metrics().ConsecutiveFailures)
			},
		},
		"a probe": {
			slow: map[string]time.Duration{api.ActivityProbe: 4 * time.Second}, overdue: 5*time.Minute + time.Second,
			checkAt: 6 * time.Minute,
			check: func(t *testing.T, s *workerEnv, st api.WorkerState) {
				require.Equal(t, lifecycle.Ready, st.State)
				require.EqualValues(t, 1, s.probes.Load(), "the next run probes at once, and not at the next checkpoint")
			},
		},
		"a drain under a client's lease": {
			script: func(s *workerEnv) {
				s.At(time.Second, s.signal(api.SignalCheckout, checkout))
				s.At(2*time.Second, s.signal(api.SignalDrain, api.Control{Reason: "new disk", By: "op"}))
			},
			spec: func(sp *spec.Spec) { sp.Rotation.DrainTimeout = spec.Duration(time.Minute) }, overdue: 40 * time.Second,
			checkAt: 63 * time.Second,
			check: func(t *testing.T, s *workerEnv, st api.WorkerState) {
				require.Equal(t, lifecycle.Stopped, st.State, "the next run drains for the rest of the time")
				require.Contains(t, s.events(), lifecycle.DrainTimeout)
			},
		},
		"a stop": {
			slow:    map[string]time.Duration{api.ActivityStop: 20 * time.Second},
			script:  func(s *workerEnv) { s.At(time.Second, s.signal(api.SignalStop, api.Control{By: "op"})) },
			overdue: 10 * time.Second, checkAt: 35 * time.Second,
			check: func(t *testing.T, s *workerEnv, st api.WorkerState) {
				require.Equal(t, lifecycle.Stopped, st.State)
			},
		},
		"the start of a successor": {
			slow:    map[string]time.Duration{api.ActivityStart: time.Minute},
			script:  func(s *workerEnv) { s.At(2*time.Minute, s.signal(api.SignalRestart, api.Order{Reason: "new moon"})) },
			overdue: 150 * time.Second, checkAt: 4 * time.Minute,
			check: func(t *testing.T, s *workerEnv, st api.WorkerState) {
				s.ready(3)
				require.Equal(t, map[string]int64{"operator": 1}, s.metrics().RotationsByReason)
			},
		},
		"a successor that waits for a client's lease": {
			script: func(s *workerEnv) {
				s.At(time.Second, s.signal(api.SignalCheckout, checkout))
				s.At(2*time.Second, s.signal(api.SignalRestart, api.Order{Reason: "new moon"}))
				s.At(50*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1"}))
			},
			spec: func(sp *spec.Spec) { sp.Rotation.DrainTimeout = spec.Duration(time.Minute) }, overdue: 40 * time.Second,
			checkAt: 51 * time.Second,
			check: func(t *testing.T, s *workerEnv, st api.WorkerState) {
				s.ready(2)
				require.EqualValues(t, 2, s.starts.Load())
			},
		},
		"an incarnation that drains beside the next one": {
			slow:    map[string]time.Duration{api.ActivityDrain: 8 * time.Second},
			script:  func(s *workerEnv) { s.At(time.Minute, s.signal(api.SignalRestart, api.Order{Reason: "new moon"})) },
			overdue: 65 * time.Second, checkAt: 90 * time.Second,
			check: func(t *testing.T, s *workerEnv, st api.WorkerState) {
				require.EqualValues(t, 2, st.Incarnation)
				require.Empty(t, st.Draining)
				require.EqualValues(t, 1, s.stops.Load(), "the old process is stopped")
			},
		},
		"a reset": {
			slow: map[string]time.Duration{api.ActivityReset: 4 * time.Second},
			script: func(s *workerEnv) {
				s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me", TTLMS: 3000}))
			},
			spec: func(sp *spec.Spec) { sp.Lease.OnExpiry = spec.ExpiryReset }, overdue: 6 * time.Second,
			checkAt: 20 * time.Second,
			check: func(t *testing.T, s *workerEnv, st api.WorkerState) {
				s.ready(1)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			s.slow = c.slow
			if c.script != nil {
				c.script(s)
			}
			runs := 0
			s.At(c.overdue-time.Millisecond, func() { runs = s.runs })
			s.OverdueAt(c.overdue)
			s.At(c.overdue+10*time.Second, func() { require.Equal(t, runs+1, s.runs, "the run continues as new") })
			s.At(c.checkAt, func() { c.check(t, s, s.state()) })
			run := standalone()
			if c.spec != nil {
				c.spec(&run.Spec)
			}
			s.runThrough(run)
		})
	}
}

func TestPendingRequestsDoNotPreventContinueAsNew(t *testing.T) {
	t.Run("a resume request of a pending worker", func(t *testing.T) {
		s := newWorkerEnv(t)
		run := inPool(func(*spec.Spec) {})
		run.StartsPaused = "too many starts failed"
		s.At(time.Second, s.signal(api.SignalResume, api.Control{}))
		s.At(2*time.Second, s.signal(api.SignalForceContinue, nil))
		s.At(3*time.Second, func() {
			require.Equal(t, 2, s.runs)
			s.signal(api.SignalStartPermitted, api.StartPermitted{Incarnation: 1})()
		})
		s.At(4*time.Second, func() {
			require.Equal(t, lifecycle.Ready, s.state().State)
			require.Contains(t, s.state().LastRefusal, "resume", "the request was carried over")
		})
		s.runThrough(run)
	})
	t.Run("the retry of a rotation while the worker is suspended", func(t *testing.T) {
		s := newWorkerEnv(t)
		s.failStarts(ofSuccessors)
		s.At(time.Minute, s.signal(api.SignalRestart, api.Order{Reason: "new moon"}))
		s.At(time.Minute+100*time.Millisecond, s.signal(api.SignalSuspend, api.Control{}))
		s.At(time.Hour, func() {
			require.Equal(t, lifecycle.Suspended, s.state().State)
			s.signal(api.SignalForceContinue, nil)()
		})
		s.At(time.Hour+time.Second, func() { require.Equal(t, 2, s.runs) })
		s.runThrough(standalone())
	})
}

// Temporal cancels one run, not the next one.
func TestACancellationThatArrivesWithTheEndOfARunIsNotLost(t *testing.T) {
	s := newWorkerEnv(t)
	s.At(time.Minute, func() {
		s.env.SignalWorkflowSkippingWorkflowTask(api.SignalForceContinue, api.Control{})
		s.env.CancelWorkflow()
		s.In(5*time.Minute, func() { s.env.SignalWorkflow(api.SignalEnd, api.Control{}) })
	})
	s.run(standalone())
	require.Equal(t, 1, s.runs)
	require.EqualValues(t, 1, s.stops.Load())
	require.Less(t, s.env.Now().Sub(s.Begin), 3*time.Minute)
}
