package worker

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
)

// A pool learns from the agent that a process is ready, perhaps before its worker does.
func TestARestartThatComesWithTheResultOfAStartLeavesTheProcessInServiceUntilTheNextIsReady(t *testing.T) {
	s := newWorkerEnv(t)
	s.failStarts(func(r api.StartRequest) bool {
		if r.Incarnation == 1 { // the start's result begins the next workflow task
			s.env.SignalWorkflowSkippingWorkflowTask(api.SignalRestart, api.Order{Reason: "new moon"})
		}
		return false
	})
	s.At(time.Minute, func() {
		require.EqualValues(t, 2, s.state().Incarnation)
		require.Equal(t, map[string]int64{"operator": 1}, s.metrics().RotationsByReason)
		require.Equal(t, []lifecycle.EventKind{lifecycle.Start, lifecycle.StartSucceeded, lifecycle.Drain}, s.events()[:3])
	})
	s.runThrough(standalone())
}

func TestASuccessorThatCannotStartLeavesTheOldProcessServing(t *testing.T) {
	s := newWorkerEnv(t)
	broken := true
	s.failStarts(func(r api.StartRequest) bool { return broken && ofSuccessors(r) })
	for m := 1; m < 200; m++ {
		s.At(time.Duration(m)*time.Minute, func() { require.Equal(t, lifecycle.Ready, s.state().State) })
	}
	s.At(61*time.Minute, func() {
		st := s.state()
		require.EqualValues(t, 1, st.Incarnation)
		require.Contains(t, st.Rotation.Failed, "the model file is missing")
		require.Len(t, notes(s.history(), lifecycle.RotationFailed), 1, "the first failure of some")
	})
	s.At(65*time.Minute, func() {
		st := s.state()
		require.Len(t, notes(s.history(), lifecycle.RotationFailed), 2, "the first failure, and giving up")
		for _, n := range notes(s.history(), lifecycle.RotationFailed) {
			require.Contains(t, n.Reason, "the model file is missing")
			require.Equal(t, lifecycle.Ready, n.From)
		}
		require.NotContains(t, st.Reason, "the model file is missing")
		require.Empty(t, tempool.HistoryGaps(s.history()))
	})
	s.At(90*time.Minute, func() { broken = false })
	s.At(200*time.Minute, func() {
		st := s.state()
		require.Greater(t, st.Incarnation, int64(5), "numbers are not used twice")
		require.Equal(t, map[string]int64{"uptime": s.metrics().Rotations}, s.metrics().RotationsByReason)
		require.Positive(t, s.metrics().Rotations)
	})
	s.runThrough(rotating(func(sp *spec.Spec) { sp.Rotation.MaxUptime = spec.Duration(time.Hour) }))
}

// The next process is ready, and waits for the end of a client's lease, when its agent ends: alone, or with that of the
// process that serves.
func TestASuccessorOfAnAgentThatHasEndedDoesNotTakeOver(t *testing.T) {
	for _, host := range []string{"a", "b"} {
		t.Run(host, func(t *testing.T) {
			s := newWorkerEnv(t)
			s.startOn(map[int64]string{1: "a", 2: host, 3: "c"})
			s.restartLeased()
			s.At(time.Minute+2*time.Second, func() {
				require.Equal(t, lifecycle.Draining, s.state().State)
				require.EqualValues(t, 2, s.state().Successor)
				s.env.SignalWorkflow(api.SignalEpochEnded, api.EpochEnded{Host: host, Epoch: 1, Reason: "lost"})
			})
			s.At(time.Minute+4*time.Second, func() {
				require.Zero(t, s.state().Successor)
				if host == "b" {
					require.NotNil(t, s.state().Lease, "the holder may finish")
					s.env.SignalWorkflow(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1"})
				}
			})
			s.At(time.Minute+10*time.Second, func() {
				st := s.ready(3)
				require.Equal(t, "c", st.Host)
				require.Zero(t, s.metrics().ConsecutiveFailures)
			})
			s.runThrough(standalone())
		})
	}
}

// Nothing need answer any more: the server forgets the timeouts of an activity that no agent has taken when the
// workflow is reset.
func TestTheDrainOfAProcessEndsWithItsAgent(t *testing.T) {
	usage := []api.ProcessUsage{usageOf(2, used(1, 0, 1)), usageOf(1, used(3, 1, 9))}
	for name, e := range map[string]api.EpochEnded{
		"lost": {Host: "a", Epoch: 1, Reason: "lost", Used: usage},
		"taken over": {Host: "a", Epoch: 1, Reason: "lost", Used: usage, Kept: []int64{1},
			NextAgent: &api.NextAgent{Epoch: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			s.startOn(map[int64]string{1: "a", 2: "b"})
			s.slow = map[string]time.Duration{api.ActivityDrain: time.Hour}
			s.At(time.Minute, s.signal(api.SignalRestart, api.Order{Reason: "new moon"}))
			s.At(time.Minute+2*time.Second, func() {
				require.Equal(t, []int64{1}, s.state().Draining)
				s.env.SignalWorkflow(api.SignalEpochEnded, api.EpochEnded{Host: "b", Epoch: 0, Reason: "another agent"})
				s.env.SignalWorkflow(api.SignalEpochEnded, e)
			})
			s.At(time.Minute+3*time.Second, func() {
				require.Empty(t, s.state().Draining)
				require.EqualValues(t, 2, s.state().Incarnation)
				require.Zero(t, s.stops.Load(), "no agent is left to stop it")
				require.EqualValues(t, 3, s.metrics().RequestsServed)
				s.env.SignalWorkflow(api.SignalEnd, api.Control{Reason: "its pool was started again"})
			})
			s.run(inPool(func(*spec.Spec) {}))
		})
	}
}

// The successor is lost while the process that it was to replace is stopping, because a client's calls were cut.
func TestASuccessorThatIsLostWhileTheOldProcessStopsIsStartedAgain(t *testing.T) {
	s := newWorkerEnv(t)
	s.startOn(map[int64]string{1: "a", 2: "b", 3: "c"})
	s.onDrain = func(api.DrainRequest) (api.DrainResult, error) { return api.DrainResult{CallsCut: 3}, nil }
	s.slow = map[string]time.Duration{api.ActivityStop: 10 * time.Second}
	s.restartLeased()
	s.At(time.Minute+5*time.Second, func() {
		require.Equal(t, lifecycle.Stopping, s.state().State)
		require.EqualValues(t, 2, s.state().Successor)
		s.env.SignalWorkflow(api.SignalEpochEnded, api.EpochEnded{Host: "b", Epoch: 1, Reason: "lost"})
	})
	s.At(2*time.Minute, func() {
		s.ready(3) // a restart is no end that recovery.restart decides about
		require.Equal(t, map[string]int64{"operator": 1}, s.metrics().RotationsByReason)
		require.Zero(t, s.metrics().ConsecutiveFailures)
		require.EqualValues(t, 3, s.metrics().CallsCut)
		require.Contains(t, reasons(s.history()), "calls cut: 3")
	})
	s.runThrough(rotating(func(sp *spec.Spec) { sp.Recovery.Restart = "never" }))
}

// The next process is ready, and waits for the end of a client's lease, when its agent is replaced by one that takes
// its processes over: alone, or with that of the process that serves.
func TestASuccessorThatTheNextAgentTookOverTakesOver(t *testing.T) {
	for _, host := range []string{"a", "b"} {
		t.Run(host, func(t *testing.T) {
			s := newWorkerEnv(t)
			s.startOn(map[int64]string{1: "a", 2: host, 3: "c"})
			ended := api.EpochEnded{Host: host, Epoch: 1, Reason: "started again", Kept: []int64{1, 2},
				NextAgent: &api.NextAgent{Epoch: 2, Endpoint: "unix:/new"}}
			s.restartLeased()
			s.At(time.Minute+2*time.Second, func() {
				require.Equal(t, lifecycle.Draining, s.state().State)
				require.EqualValues(t, 2, s.state().Successor)
				s.env.SignalWorkflow(api.SignalEpochEnded, ended)
			})
			s.At(time.Minute+4*time.Second, func() {
				s.mu.Lock()
				require.Len(t, s.watches, 1, "the next agent kills what nobody claims")
				require.EqualValues(t, 2, s.watches[0].Incarnation)
				require.True(t, s.watches[0].Rules.Limits, "it observes what the first agent did")
				s.mu.Unlock()
				if host == "b" {
					require.EqualValues(t, 2, s.state().Successor)
					require.NotNil(t, s.state().Lease, "the holder may finish")
					s.env.SignalWorkflow(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1", Usage: *used(2, 0, 1)})
				}
			})
			s.At(time.Minute+10*time.Second, func() {
				st := s.ready(2)
				require.Equal(t, map[string]int64{"b": 2}[host], s.metrics().RequestsServed)
				require.Equal(t, host, st.Host)
				require.EqualValues(t, 2, s.starts.Load())
				s.env.SignalWorkflow(api.SignalEpochEnded, ended) // workers are notified twice
			})
			s.At(time.Minute+20*time.Second, func() { require.EqualValues(t, 2, s.state().Incarnation) })
			taken := s.UpdateAt(time.Minute+21*time.Second, api.UpdateCheckout, api.CheckoutRequest{Holder: "you"})
			s.At(2*time.Minute, func() {
				require.Equal(t, "unix:/new", taken.Value.(*api.Lease).Endpoint)
				s.env.SignalWorkflow(api.SignalEpochEnded, api.EpochEnded{Host: host, Epoch: 2, Reason: "gone"})
			})
			s.At(3*time.Minute, func() {
				require.EqualValues(t, 3, s.state().Incarnation, "the process belongs to epoch 2 since")
			})
			s.runThrough(standalone())
		})
	}
}

// The agent of both processes is replaced by one that takes them over: the successor takes over at once, while it is
// being claimed.
func takenOverTogether(t *testing.T) *workerEnv {
	s := newWorkerEnv(t)
	s.startOn(onOneHost)
	s.restartLeased()
	s.At(time.Minute+2*time.Second, func() { require.EqualValues(t, 2, s.state().Successor) })
	s.At(time.Minute+3*time.Second, s.signal(api.SignalEpochEnded, inherited(1, 2)))
	return s
}

// The end of a run would take the claim from the agent's queue, and nobody would claim the process again.
func TestARunDoesNotContinueAsNewWhileItClaimsItsSuccessor(t *testing.T) {
	s := takenOverTogether(t)
	s.At(time.Minute+2*time.Second, s.signal(api.SignalForceContinue, api.Control{}))
	s.slow = map[string]time.Duration{api.ActivityWatch: 2 * time.Second}
	s.At(time.Minute+4*time.Second, func() {
		require.EqualValues(t, 2, s.state().Incarnation)
		require.Equal(t, 1, s.runs)
	})
	s.At(time.Minute+10*time.Second, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		require.Equal(t, 2, s.runs)
		s.mu.Lock()
		require.Len(t, s.watches, 1)
		s.mu.Unlock()
	})
	s.runThrough(standalone())
}

func TestASuccessorWhoseClaimFailedIsClaimedAgainOnceItHasTakenOver(t *testing.T) {
	s := takenOverTogether(t)
	s.onWatch = func(api.WatchRequest) (api.WatchResult, error) {
		if len(s.watches) == 1 {
			return api.WatchResult{}, errors.New("the agent is busy")
		}
		return api.WatchResult{}, nil
	}
	s.At(time.Minute+10*time.Second, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		s.mu.Lock()
		require.Len(t, s.watches, 2)
		require.EqualValues(t, 2, s.watches[1].Incarnation)
		s.mu.Unlock()
	})
	s.runThrough(standalone())
}

// A successor that began before a restart may have the older spec, or have read the older files, whether it starts or
// waits for the end of a client's lease.
func TestARestartEndsASuccessorThatBeganBeforeIt(t *testing.T) {
	newer := workflowtest.Spec()
	newer.Pool.Env = map[string]string{"NEWER": "1"}
	for name, r := range map[string]api.Order{
		"another spec":  {Cause: api.CauseSpec, Spec: &newer, SpecVersion: 2},
		"changed files": {Cause: api.CauseFiles},
	} {
		for step, startTakes := range map[string]time.Duration{"starting": 10 * time.Second, "ready": 0} {
			t.Run(name+", "+step, func(t *testing.T) {
				s := newWorkerEnv(t)
				s.slow = map[string]time.Duration{api.ActivityStart: startTakes}
				started := map[int64]string{}
				s.failStarts(func(r api.StartRequest) bool {
					started[r.Incarnation] = r.Spec.Pool.Env["NEWER"]
					return false
				})
				s.restartLeased()
				s.At(time.Minute+2*time.Second, func() {
					require.EqualValues(t, 2, s.state().Successor)
					s.env.SignalWorkflow(api.SignalRestart, r)
				})
				s.At(time.Minute+3*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1"}))
				s.At(2*time.Minute, func() {
					st := s.ready(3)
					require.Equal(t, max(1, r.SpecVersion), st.SpecVersion)
					require.Equal(t, map[bool]string{true: "1"}[r.Spec != nil], started[3])
					require.Empty(t, st.Draining)
					if step == "ready" { // a start that is cancelled ends its process
						require.EqualValues(t, 2, s.stops.Load())
					}
				})
				s.runThrough(standalone())
			})
		}
	}
}

func TestOnlyAReplacedProcessThatDidNotStopIsRecordedAsKilled(t *testing.T) {
	for name, test := range map[string]struct {
		exit  lifecycle.Exit
		notes int
	}{
		"after its grace": {lifecycle.Exit{Killed: true, Signal: "SIGKILL"}, 1},
		"by its agent":    {lifecycle.Exit{Killed: true, ByAgent: true, Signal: "SIGKILL"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			s.onStop = always[api.StopRequest](api.StopResult{Exit: test.exit})
			s.At(2*time.Second, s.signal(api.SignalRestart, api.Order{Reason: "new moon"}))
			s.At(time.Minute, func() {
				require.EqualValues(t, 2, s.state().Incarnation)
				require.Len(t, notes(s.history(), lifecycle.ProcessKilled), test.notes)
			})
			s.runThrough(standalone())
		})
	}
}

// TestARotationWaitsBeforeEachFurtherAttempt: before the last one, too. Its failure is one event.
func TestARotationWaitsBeforeEachFurtherAttempt(t *testing.T) {
	s := newWorkerEnv(t)
	var tried []time.Time
	s.failStarts(func(r api.StartRequest) bool {
		if ofSuccessors(r) {
			tried = append(tried, s.env.Now())
		}
		return ofSuccessors(r)
	})
	s.At(62*time.Minute, func() {
		require.Len(t, tried, 2)
		require.Greater(t, tried[1].Sub(tried[0]), 5*time.Second)
		require.Equal(t, []string{"rotation.requested 1 uptime", "rotation.started 1 uptime",
			"rotation.finished 1 uptime failed"}, s.rotationEvents())
	})
	s.runThrough(rotating(func(sp *spec.Spec) {
		sp.Rotation.MaxUptime = spec.Duration(time.Hour)
		sp.Recovery.MaxConsecutiveFailures, sp.Recovery.BackoffInitial = 2, spec.Duration(10*time.Second)
	}))
}
