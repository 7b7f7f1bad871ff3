package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// serve is the chapter in which a process lives: idle, leased, degraded or suspended. Requests of people come first, then
// what the host saw, then the clocks.
func (w *worker) serve() bool {
	return w.handleRequests() || w.handleResults() || w.handleTimers() || w.rotate() || w.ensureWatch()
}

func (w *worker) handleRequests() bool {
	if r := w.events.stop; r.wanted {
		w.events.stop = request{}
		w.cancelRotation()
		w.restIfAsked(r.stayDown)
		w.warn("a worker is stopped", r.reason)
		w.transition(lifecycle.Stop, r.reason, nil)
		return true
	}
	if r := w.events.drain; r.wanted {
		w.events.drain = request{}
		w.cancelRotation()
		w.restIfAsked(r.stayDown)
		w.warn("a worker is drained", r.reason)
		w.transition(lifecycle.Drain, r.reason, nil)
		return true
	}
	if r := w.takeRestart(); r.wanted {
		w.beginRestart(r)
		return true
	}
	if r := w.events.suspend; r.wanted && w.Machine.State != lifecycle.Busy && !w.resetting() {
		w.events.suspend, w.SuspendWanted = request{}, false
		if w.Machine.State == lifecycle.Suspended {
			w.refuse("suspend: it is suspended already")
			return true
		}
		w.yieldDisruption()
		w.warn("a worker is suspended", r.reason)
		w.transition(lifecycle.Suspend, r.reason, nil)
		cancelTask(&w.tasks.checkpoint)
		return true
	}
	if r := w.events.resume; r.wanted {
		w.events.resume = request{}
		if w.Machine.State != lifecycle.Suspended {
			w.events.suspend, w.SuspendWanted = request{}, false
			w.refuse("resume: it is not suspended")
			return true
		}
		w.transition(lifecycle.Resume, r.reason, nil)
		w.NextCheckpoint = w.now() // a probe first: nobody looked while it was suspended
		return true
	}
	return false
}

// tell logs what was decided about this incarnation, and why.
func (w *worker) warn(what, reason string) {
	workflow.GetLogger(w.ctx).Warn(what, "worker", w.name(), "incarnation", w.Machine.Incarnation, "reason", reason)
}

func (w *worker) handleResults() bool {
	if a := take(&w.events.watch); a != nil {
		w.watchEnded(a)
		return true
	}
	if a := take(&w.events.reset); a != nil {
		w.resetEnded(a)
		return true
	}
	if a := take(&w.events.probe); a != nil {
		w.NextCheckpoint = w.now().Add(w.Spec.Health.Checkpoint.D())
		switch {
		case a.err != nil && NotStarted(a.err):
			w.hostLost(a.err)
		case a.err != nil:
			w.probeFailed("the health check itself failed: " + Message(a.err))
		default:
			w.setSample(a.result.Sample)
			w.setAssessment(a.result.Assessment)
			if a.result.Gone {
				w.setObservedUsage(a.result.Usage)
				w.processExited(&lifecycle.Exit{Error: a.result.Reason}, a.result.Reason)
			} else if a.result.Healthy {
				w.probePassed()
			} else {
				w.probeFailed(a.result.Reason)
			}
		}
		return true
	}
	return false
}

func (w *worker) watchEnded(a *completion[api.WatchResult]) {
	switch {
	case a.err != nil && NotStarted(a.err):
		w.hostLost(a.err)
		return
	case a.err != nil: // silence proves nothing yet: the server may have been away; the next Watch finds out
		w.setHeartbeatUsage(a.err)
		return
	}
	w.setSample(a.result.Sample)
	w.setAssessment(a.result.Assessment)
	w.setObservedUsage(a.result.Usage)
	switch a.result.Event {
	case api.WatchExited:
		w.processExited(a.result.Exit, a.result.Reason)
	case api.WatchUnknown:
		w.Cause = api.CauseHostLost
		w.warn("a process is lost", a.result.Reason)
		w.setIntent(IntentReplace, a.result.Reason)
		w.processExited(&lifecycle.Exit{Error: a.result.Reason}, a.result.Reason)
	case api.WatchShutdown:
		w.cancelRotation()
		w.Cause = api.CauseHostLost
		w.warn("a worker is placed anew", a.result.Reason)
		w.setIntent(IntentReplace, a.result.Reason)
		w.transition(lifecycle.Drain, a.result.Reason, nil)
	case api.WatchProbeFailed:
		w.probeFailed(a.result.Reason)
	case api.WatchProbePassed:
		w.probePassed()
	case api.WatchReplace:
		w.requestRotation(a.result.Cause, a.result.Reason)
	}
}

// hostLost gives the incarnation up: its host takes no work. Its number fences it, should it still live.
func (w *worker) hostLost(err error) {
	reason := fmt.Sprintf("host %s is lost: nobody took work from %s within %s", w.Process.Host, api.HostQueue(w.Process.Host), HostTimeout)
	w.Cause = api.CauseHostLost
	w.warn("a host is lost", reason)
	w.setIntent(IntentReplace, reason)
	w.processExited(&lifecycle.Exit{Error: "host lost: " + Message(err)}, reason)
}

func (w *worker) probeFailed(reason string) {
	w.ProbeFailures++
	w.Machine = lifecycle.WithHealth(w.Machine, lifecycle.Unhealthy, w.now())
	limit := w.Spec.Health.MaxFailures
	counted := fmt.Sprintf("%s (failure %d of %d)", reason, w.ProbeFailures, limit)
	w.warn("a health check failed", counted)
	if w.Machine.State == lifecycle.Ready {
		w.transition(lifecycle.ProbeFailed, counted, nil)
	}
	if w.ProbeFailures >= limit && w.Machine.State != lifecycle.Suspended {
		w.Cause = api.CauseUnhealthy
		w.transition(lifecycle.Unhealthy, counted, nil)
	}
}

func (w *worker) probePassed() {
	w.ProbeFailures = 0
	w.Machine = lifecycle.WithHealth(w.Machine, lifecycle.Healthy, w.now())
	if w.Machine.State == lifecycle.Degraded && !w.resetting() {
		w.transition(lifecycle.ProbePassed, "a probe passed", nil)
	}
}

func (w *worker) setSample(s *api.Sample) {
	if s == nil {
		return
	}
	w.Sample = s
	w.Counters.PeakMemoryBytes = max(w.Counters.PeakMemoryBytes, s.RSSBytes)
}

func (w *worker) setAssessment(a *api.Assessment) {
	if a != nil {
		w.Assessment = a
	}
}

func (w *worker) handleTimers() bool {
	if w.events.leaseTimer {
		w.events.leaseTimer = false
		if w.expireLease() {
			return true
		}
	}
	w.ensureLeaseTimer()
	w.events.uptime = false
	w.ensureUptimeTimer()
	if w.events.checkpoint {
		w.events.checkpoint = false
		if w.tasks.probe == nil && w.Machine.State != lifecycle.Suspended {
			run(w, &w.tasks.probe, &w.events.probe, api.ActivityProbe,
				w.onHost("health checkpoint", w.Spec.Health.Timeout.D()+slack), api.WatchRequest{Process: w.process(), Health: w.Spec.Health})
		}
	}
	if w.tasks.checkpoint == nil && w.tasks.probe == nil && w.Machine.State != lifecycle.Suspended {
		w.timer(&w.tasks.checkpoint, &w.events.checkpoint, timerOptions{
			max(0, w.NextCheckpoint.Sub(w.now())), "next health checkpoint",
		})
	}
	return false
}

// ensureWatch keeps one Watch running that asks what the state needs.
func (w *worker) ensureWatch() bool {
	wanted := api.WatchRequest{
		Process: w.process(), Health: w.Spec.Health, Probe: w.Machine.State != lifecycle.Suspended, Rules: w.watchRules(),
		Replaced: api.Replaced{Rotations: w.Counters.RotationsByReason, Restarts: w.Counters.RestartsByReason},
	}
	if w.Machine.State == lifecycle.Degraded {
		wanted.Failures = w.ProbeFailures + w.LeaseErrors
	}
	if w.tasks.watch != nil && sameWatch(w.tasks.watchRequest, wanted) {
		return false
	}
	cancelTask(&w.tasks.watch)
	options := w.onHost(fmt.Sprintf("watch process %d of %s", w.Process.PID, w.name()), watchTimeout)
	options.silent = HeartbeatTimeout
	w.tasks.watchRequest = wanted
	run(w, &w.tasks.watch, &w.events.watch, api.ActivityWatch, options, wanted)
	return false
}

func sameWatch(a, b api.WatchRequest) bool {
	return a.Process == b.Process && a.Probe == b.Probe && a.Failures == b.Failures && a.Rules == b.Rules
}

// drain takes no new lease and waits for what is in flight, at most rotation.drain_timeout.
func (w *worker) drain() bool {
	w.absorbRequests(false)
	if r := w.events.stop; r.wanted {
		w.events.stop = request{}
		w.restIfAsked(r.stayDown)
		w.transition(lifecycle.Stop, r.reason, nil)
		return true
	}
	if a := take(&w.events.watch); a != nil && a.err != nil {
		w.setHeartbeatUsage(a.err)
	} else if a != nil && a.result.Exit != nil {
		w.setObservedUsage(a.result.Usage)
		w.processExited(a.result.Exit, a.result.Reason)
		return true
	}
	limit := w.Spec.Rotation.DrainTimeout.D()
	if a := take(&w.events.drained); a != nil && a.err == nil {
		if a.result.Checkin != nil {
			w.checkin(*a.result.Checkin)
		}
		if a.result.Cut > 0 {
			w.recordCutCalls(a.result.Cut)
			w.transition(lifecycle.DrainTimeout, w.cutReason(a.result.Cut), nil)
			return true
		}
	}
	over := w.Lease == nil || w.events.drainTimeout
	switch {
	case over && w.Successor != nil && w.Successor.Ready != nil && w.Intent != IntentRest:
		w.events.drainTimeout = false
		w.switchOver()
		return true
	case w.Lease == nil:
		w.transition(lifecycle.Drained, "nothing is in flight", nil)
		return true
	case w.events.drainTimeout:
		w.events.drainTimeout = false
		w.transition(lifecycle.DrainTimeout, fmt.Sprintf("lease %s of %q was not given back within %s", w.Lease.ID, w.Lease.Holder, limit), nil)
		return true
	}
	if w.tasks.drainLimit == nil {
		// The host says how many calls it cut; the timer is for leases that are not given back, and for a host that is silent.
		w.timer(&w.tasks.drainLimit, &w.events.drainTimeout, timerOptions{limit + drainSlack, "drain timeout"})
		run(w, &w.tasks.drain, &w.events.drained, api.ActivityDrain, w.onHost("drain: wait for calls in flight", limit+slack),
			api.DrainRequest{Process: w.process(), Timeout: w.Spec.Rotation.DrainTimeout})
	}
	return false
}

// drainSlack is what the host's own answer to a drain may take after the drain timeout.
const drainSlack = 250 * time.Millisecond
