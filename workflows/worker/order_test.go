package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// together sends signals that reach the worker in one workflow task.
func (s *workerEnv) together(names ...string) {
	for _, name := range names[:len(names)-1] {
		s.env.SignalWorkflowSkippingWorkflowTask(api.SignalOrder, orderOf(name))
	}
	s.env.SignalWorkflow(api.SignalOrder, orderOf(names[len(names)-1]))
}

func orderOf(kind string) api.Order { return api.Order{Kind: kind, Reason: kind} }

func TestTheLatestOfOrdersThatArriveTogetherCounts(t *testing.T) {
	for name, c := range map[string]struct {
		before []string // what was ordered long before
		orders []string
		want   lifecycle.State
	}{
		"a stop after a restart": {nil, []string{api.SignalRestart, api.SignalStop}, lifecycle.Stopped},
		"a restart after a stop": {nil, []string{api.SignalStop, api.SignalRestart}, lifecycle.Ready},
		"a drain after a restart": {nil, []string{api.SignalRestart, api.SignalDrain},
			lifecycle.Stopped},
		"a restart after a drain": {nil, []string{api.SignalDrain, api.SignalRestart}, lifecycle.Ready},
		"a suspension after a resumption": {[]string{api.SignalSuspend},
			[]string{api.SignalResume, api.SignalSuspend}, lifecycle.Suspended},
		"a resumption after a suspension": {nil, []string{api.SignalSuspend, api.SignalResume}, lifecycle.Ready},
		"a suspension after two resumptions": {[]string{api.SignalSuspend},
			[]string{api.SignalResume, api.SignalSuspend, api.SignalResume, api.SignalSuspend}, lifecycle.Suspended},
		"the last of five": {nil,
			[]string{api.SignalSuspend, api.SignalResume, api.SignalSuspend, api.SignalResume, api.SignalSuspend},
			lifecycle.Suspended},
		"a stop after a resumption": {[]string{api.SignalSuspend},
			[]string{api.SignalResume, api.SignalStop}, lifecycle.Stopped},
		"the last of four": {nil,
			[]string{api.SignalSuspend, api.SignalResume, api.SignalSuspend, api.SignalResume}, lifecycle.Ready},
		"a restart of a stopped worker, after a stop": {[]string{api.SignalStop},
			[]string{api.SignalStop, api.SignalRestart}, lifecycle.Ready},
		"a stop of a stopped worker, after a restart": {[]string{api.SignalStop},
			[]string{api.SignalRestart, api.SignalStop}, lifecycle.Stopped},
		"a drain of a stopped worker, after a restart": {[]string{api.SignalStop},
			[]string{api.SignalRestart, api.SignalDrain}, lifecycle.Stopped},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			for _, order := range c.before {
				s.At(time.Minute, func() { s.together(order) })
			}
			s.At(2*time.Minute, func() { s.together(c.orders...) })
			s.At(4*time.Minute, func() { require.Equal(t, c.want, s.state().State) })
			s.runThrough(standalone())
		})
	}
}

// Temporal does not keep the order of what a pool sends to its worker.
func TestARestartThatIsOvertakenDoesNotBringItsOlderSpecBack(t *testing.T) {
	restart := func(version int64) api.Order {
		sp := standalone().Spec
		return api.Order{Reason: "apply", Spec: &sp, SpecVersion: version}
	}
	for name, send := range map[string]func(s *workerEnv){
		"in one workflow task": func(s *workerEnv) {
			s.env.SignalWorkflowSkippingWorkflowTask(api.SignalRestart, restart(3))
			s.env.SignalWorkflow(api.SignalRestart, restart(2))
		},
		"during the restart": func(s *workerEnv) {
			s.env.SignalWorkflow(api.SignalRestart, restart(3))
			s.In(time.Second, s.signal(api.SignalRestart, restart(2)))
		},
		"after it": func(s *workerEnv) {
			s.env.SignalWorkflow(api.SignalRestart, restart(3))
			s.In(time.Minute, s.signal(api.SignalRestart, restart(2)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			s.slow = map[string]time.Duration{api.ActivityStart: 10 * time.Second}
			s.At(time.Minute, func() { send(s) })
			s.At(5*time.Minute, func() {
				require.Equal(t, lifecycle.Ready, s.state().State)
				require.EqualValues(t, 3, s.state().SpecVersion)
			})
			s.runThrough(standalone())
		})
	}
}

// A pool that continues as new before it learns that a restart has arrived sends it again.
func TestARestartThatArrivesTwiceIsCarriedOutOnce(t *testing.T) {
	s := newWorkerEnv(t)
	restart := func(id string) func() { return s.signal(api.SignalRestart, api.Order{ID: id, Reason: "new moon"}) }
	s.At(time.Minute, restart("run/1"))
	s.At(2*time.Minute, s.signal(api.SignalForceContinue, api.Control{}))
	s.At(3*time.Minute, restart("run/1"))
	s.At(4*time.Minute-time.Second, restart("run/1"))
	s.At(4*time.Minute, func() {
		require.Equal(t, 2, s.runs)
		require.EqualValues(t, 2, s.state().Incarnation)
		restart("run/2")()
	})
	for i := range 2 {
		s.At(time.Duration(5+i)*time.Minute, func() {
			require.EqualValues(t, 3+i, s.state().Incarnation)
			restart("")() // an operator's
		})
	}
	s.At(7*time.Minute, func() { require.EqualValues(t, 5, s.state().Incarnation) })
	s.runThrough(standalone())
}

// The worker has given the spec of the restart up: it must not use it when its process crashes later.
func TestARestartThatArrivesTwiceDoesNotBringAFailedSpecBack(t *testing.T) {
	s := newWorkerEnv(t)
	s.failStarts(func(r api.StartRequest) bool { return r.Spec.Pool.Env["BROKEN"] != "" })
	broken := standalone().Spec
	broken.Pool.Env = map[string]string{"BROKEN": "1"}
	restart := s.signal(api.SignalRestart, api.Order{ID: "run/1", Reason: "apply", Spec: &broken, SpecVersion: 2})
	s.At(time.Minute, restart)
	s.At(30*time.Minute, func() {
		require.Nil(t, s.state().Rotation, "it has given up")
		require.EqualValues(t, 1, s.state().Incarnation)
		restart()
	})
	s.At(31*time.Minute, s.signal(api.SignalProcessEvents, observed(crash(0).result)))
	s.At(40*time.Minute, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		require.EqualValues(t, 1, s.state().SpecVersion)
	})
	s.runThrough(rotating(func(sp *spec.Spec) { sp.Recovery.MaxConsecutiveFailures = 2 }))
}

// newestReport is the last of the worker's reports to its pool.
func (s *workerEnv) newestReport() api.RosterEntry {
	reports := s.signalsOf(api.SignalWorkerChanged)
	return reports[len(reports)-1].(api.RosterEntry)
}

// The handler of an update runs before the workflow, and handles signals, too.
func TestADrainToFreeMemoryIsReportedAsNoOrderOfAnOperator(t *testing.T) {
	s := newWorkerEnv(t)
	s.At(time.Minute, func() { s.together(api.SignalStop) })
	s.At(2*time.Minute, func() { s.together(api.SignalRestart) })
	s.At(3*time.Minute, s.signal(api.SignalOrder, api.Order{Kind: api.SignalDrain, Cause: api.CausePressure}))
	s.At(4*time.Minute, func() {
		require.True(t, s.newestReport().Resting)
		require.Zero(t, s.newestReport().RestOrderedAt)
		s.together(api.SignalStop)
	})
	s.At(5*time.Minute, func() {
		require.Equal(t, 4*time.Minute, s.newestReport().RestOrderedAt.Sub(s.Begin).Round(time.Minute))
	})
	s.runThrough(inPool(func(*spec.Spec) {}))
}

func TestAnOperatorsOrderDuringADrainToFreeMemoryIsReportedAtOnce(t *testing.T) {
	for state, c := range map[lifecycle.State]struct{ slow, order string }{
		lifecycle.Draining: {api.ActivityDrain, api.SignalDrain}, lifecycle.Stopping: {api.ActivityStop, api.SignalStop},
	} {
		s := newWorkerEnv(t)
		s.slow = map[string]time.Duration{c.slow: 5 * time.Minute}
		s.At(time.Minute, s.signal(api.SignalOrder, api.Order{Kind: api.SignalDrain, Cause: api.CausePressure}))
		s.At(2*time.Minute, func() { s.together(c.order) })
		s.At(3*time.Minute, func() {
			require.Equal(t, state, s.newestReport().State)
			require.Equal(t, 2*time.Minute, s.newestReport().RestOrderedAt.Sub(s.Begin).Round(time.Minute))
		})
		s.runThrough(inPool(func(sp *spec.Spec) { sp.Rotation.DrainTimeout = spec.Duration(time.Hour) }))
	}
}

func TestACheckoutDoesNotChangeTheOrderOfOrders(t *testing.T) {
	s := newWorkerEnv(t)
	s.At(time.Minute, func() {
		for _, name := range []string{api.SignalRestart, api.SignalStop, api.SignalRestart, api.SignalStop} {
			s.env.SignalWorkflowSkippingWorkflowTask(api.SignalOrder, orderOf(name))
		}
		s.Update(api.UpdateCheckout, api.CheckoutRequest{Holder: "alice"})
	})
	s.At(4*time.Minute, func() {
		require.Equal(t, lifecycle.Stopped, s.state().State)
		s.signal(api.SignalRestart, api.Order{})()
	})
	s.At(5*time.Minute, func() { require.Equal(t, lifecycle.Ready, s.state().State) })
	s.runThrough(standalone())
}

func TestAStopEndsTheWaitForTheNextStart(t *testing.T) {
	for wait, setUp := range map[string]func(*workerEnv, *Run){
		"for capacity": func(s *workerEnv, _ *Run) {
			s.slow = map[string]time.Duration{api.ActivityAwaitCapacity: time.Hour}
			s.onStart = func(api.StartRequest) (api.StartResult, error) {
				return api.StartResult{}, temporal.NewNonRetryableApplicationError("host h is full", string(api.CodeNoWorkers), nil)
			}
		},
		"for a permit": func(_ *workerEnv, run *Run) { run.StartsPaused = "too many starts failed" },
		"for a backoff": func(s *workerEnv, run *Run) {
			s.failStarts(allStarts)
			run.Spec.Recovery.BackoffInitial = spec.Duration(time.Hour)
		},
	} {
		t.Run(wait, func(t *testing.T) {
			s := newWorkerEnv(t)
			run := inPool(func(*spec.Spec) {})
			setUp(s, &run)
			s.At(time.Minute, func() {
				require.Equal(t, lifecycle.Pending, s.state().State)
				s.together(api.SignalStop)
			})
			s.At(2*time.Hour, func() {
				st := s.state()
				require.Equal(t, lifecycle.Stopped, st.State)
				require.Equal(t, api.SignalStop, st.Reason)
				last := s.newestReport()
				require.True(t, last.Resting)
				require.Equal(t, api.SignalStop, last.Reason)
			})
			s.runThrough(run)
		})
	}
}

func TestAWorkerThatItsPoolEndsWhileItWaitsSaysSo(t *testing.T) {
	s := newWorkerEnv(t)
	run := inPool(func(sp *spec.Spec) { sp.Recovery.BackoffInitial = spec.Duration(time.Hour) })
	s.failStarts(allStarts)
	s.At(time.Minute, s.signal(api.SignalEnd, api.Control{Reason: "pool stopping"}))
	s.run(run)
	require.Equal(t, lifecycle.Stopped, s.state().State)
	require.Equal(t, "pool stopping", s.state().Reason)
}

// Its pool's next spec may mend what it failed for.
func TestARestartForgetsEarlierFailures(t *testing.T) {
	for state, at := range map[lifecycle.State]time.Duration{
		lifecycle.Starting: 45 * time.Second, lifecycle.Pending: 61 * time.Second,
	} {
		t.Run(string(state), func(t *testing.T) {
			s := newWorkerEnv(t)
			s.failStarts(allStarts)
			s.slow = map[string]time.Duration{api.ActivityStart: 30 * time.Second}
			s.At(at, func() {
				require.Equal(t, state, s.state().State)
				s.signal(api.SignalRestart, api.Order{})()
			})
			s.At(time.Hour, func() {
				require.Equal(t, lifecycle.Failed, s.state().State)
				require.EqualValues(t, 5, s.state().Incarnation, "three failures more")
			})
			s.runThrough(rotating(func(sp *spec.Spec) {
				sp.Recovery.MaxConsecutiveFailures, sp.Recovery.BackoffInitial = 3, spec.Duration(10*time.Second)
			}))
		})
	}
}
