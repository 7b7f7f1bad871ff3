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
	return w.serveRequests() || w.serveObservations() || w.serveClocks() || w.rotate() || w.observeProcess()
}

func (w *worker) serveRequests() bool {
	if r := w.facts.stop; r.wanted {
		w.facts.stop = request{}
		w.dropRotation()
		w.rest(r.rest)
		w.tell("a worker is stopped", r.reason)
		w.next(lifecycle.Stop, r.reason, nil)
		return true
	}
	if r := w.facts.drain; r.wanted {
		w.facts.drain = request{}
		w.dropRotation()
		w.rest(r.rest)
		w.tell("a worker is drained", r.reason)
		w.next(lifecycle.Drain, r.reason, nil)
		return true
	}
	if r := w.takeRestart(); r.wanted {
		w.restarted(r)
		return true
	}
	if r := w.facts.suspend; r.wanted && w.Machine.State != lifecycle.Busy && !w.resetting() {
		w.facts.suspend, w.SuspendWanted = request{}, false
		if w.Machine.State == lifecycle.Suspended {
			w.refuse("suspend: it is suspended already")
			return true
		}
		w.yieldTurn()
		w.tell("a worker is suspended", r.reason)
		w.next(lifecycle.Suspend, r.reason, nil)
		stopTask(&w.work.checkpoint)
		return true
	}
	if r := w.facts.resume; r.wanted {
		w.facts.resume = request{}
		if w.Machine.State != lifecycle.Suspended {
			w.facts.suspend, w.SuspendWanted = request{}, false
			w.refuse("resume: it is not suspended")
			return true
		}
		w.next(lifecycle.Resume, r.reason, nil)
		w.NextCheckpoint = w.now() // a probe first: nobody looked while it was suspended
		return true
	}
	return false
}

// tell logs what was decided about this incarnation, and why.
func (w *worker) tell(what, reason string) {
	workflow.GetLogger(w.ctx).Warn(what, "worker", w.name(), "incarnation", w.Machine.Incarnation, "reason", reason)
}

func (w *worker) serveObservations() bool {
	if a := taken(&w.facts.watch); a != nil {
		w.watched(a)
		return true
	}
	if a := taken(&w.facts.reset); a != nil {
		w.wasReset(a)
		return true
	}
	if a := taken(&w.facts.probe); a != nil {
		w.NextCheckpoint = w.now().Add(w.Spec.Health.Checkpoint.D())
		switch {
		case a.err != nil && neverStarted(a.err):
			w.hostLost(a.err)
		case a.err != nil:
			w.probeFailed("the health check itself failed: " + sentence(a.err))
		default:
			w.observe(a.result.Sample)
			w.assessed(a.result.Assessment)
			if a.result.Gone {
				w.see(a.result.Usage)
				w.exited(&lifecycle.Exit{Error: a.result.Reason}, a.result.Reason)
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

func (w *worker) watched(a *answer[api.WatchResult]) {
	switch {
	case a.err != nil && neverStarted(a.err):
		w.hostLost(a.err)
		return
	case a.err != nil: // silence proves nothing yet: the server may have been away; the next Watch finds out
		w.seeLast(a.err)
		return
	}
	w.observe(a.result.Sample)
	w.assessed(a.result.Assessment)
	w.see(a.result.Usage)
	switch a.result.Event {
	case api.WatchExited:
		w.exited(a.result.Exit, a.result.Reason)
	case api.WatchUnknown:
		w.Cause = api.CauseHostLost
		w.tell("a process is lost", a.result.Reason)
		w.intend(IntentReplace, a.result.Reason)
		w.exited(&lifecycle.Exit{Error: a.result.Reason}, a.result.Reason)
	case api.WatchShutdown:
		w.dropRotation()
		w.Cause = api.CauseHostLost
		w.tell("a worker is placed anew", a.result.Reason)
		w.intend(IntentReplace, a.result.Reason)
		w.next(lifecycle.Drain, a.result.Reason, nil)
	case api.WatchProbeFailed:
		w.probeFailed(a.result.Reason)
	case api.WatchProbePassed:
		w.probePassed()
	case api.WatchReplace:
		w.want(a.result.Cause, a.result.Reason)
	}
}

// hostLost gives the incarnation up: its host takes no work. Its number fences it, should it still live.
func (w *worker) hostLost(err error) {
	reason := fmt.Sprintf("host %s is lost: nobody took work from %s within %s", w.Process.Host, api.HostQueue(w.Process.Host), hostPatience)
	w.Cause = api.CauseHostLost
	w.tell("a host is lost", reason)
	w.intend(IntentReplace, reason)
	w.exited(&lifecycle.Exit{Error: "host lost: " + sentence(err)}, reason)
}

func (w *worker) probeFailed(reason string) {
	w.ProbeFailures++
	w.Machine = lifecycle.WithHealth(w.Machine, lifecycle.Unhealthy, w.now())
	limit := w.Spec.Health.MaxFailures
	counted := fmt.Sprintf("%s (failure %d of %d)", reason, w.ProbeFailures, limit)
	w.tell("a health check failed", counted)
	if w.Machine.State == lifecycle.Ready {
		w.next(lifecycle.ProbeFailed, counted, nil)
	}
	if w.ProbeFailures >= limit && w.Machine.State != lifecycle.Suspended {
		w.Cause = api.CauseUnhealthy
		w.next(lifecycle.Unhealthy, counted, nil)
	}
}

func (w *worker) probePassed() {
	w.ProbeFailures = 0
	w.Machine = lifecycle.WithHealth(w.Machine, lifecycle.Healthy, w.now())
	if w.Machine.State == lifecycle.Degraded && !w.resetting() {
		w.next(lifecycle.ProbePassed, "a probe passed", nil)
	}
}

func (w *worker) observe(s *api.Sample) {
	if s == nil {
		return
	}
	w.Sample = s
	w.Counters.PeakMemoryBytes = max(w.Counters.PeakMemoryBytes, s.RSSBytes)
}

func (w *worker) assessed(a *api.Assessment) {
	if a != nil {
		w.Assessment = a
	}
}

func (w *worker) serveClocks() bool {
	if w.facts.leaseTimer {
		w.facts.leaseTimer = false
		if w.leaseOverdue() {
			return true
		}
	}
	w.keepLeaseTimer()
	w.facts.uptime = false
	w.keepUptimeTimer()
	if w.facts.checkpoint {
		w.facts.checkpoint = false
		if w.work.probe == nil && w.Machine.State != lifecycle.Suspended {
			run(w, &w.work.probe, &w.facts.probe, api.ActivityProbe,
				w.onHost("health checkpoint", w.Spec.Health.Timeout.D()+slack), api.WatchRequest{Process: w.process(), Health: w.Spec.Health})
		}
	}
	if w.work.checkpoint == nil && w.work.probe == nil && w.Machine.State != lifecycle.Suspended {
		w.timer(&w.work.checkpoint, &w.facts.checkpoint, timerOptions{
			max(0, w.NextCheckpoint.Sub(w.now())), "next health checkpoint",
		})
	}
	return false
}

// observeProcess keeps one Watch running that asks what the state needs.
func (w *worker) observeProcess() bool {
	wanted := api.WatchRequest{
		Process: w.process(), Health: w.Spec.Health, Probe: w.Machine.State != lifecycle.Suspended, Rules: w.watchRules(),
		Replaced: api.Replaced{Rotations: w.Counters.RotationsByReason, Restarts: w.Counters.RestartsByReason},
	}
	if w.Machine.State == lifecycle.Degraded {
		wanted.Failures = w.ProbeFailures + w.LeaseErrors
	}
	if w.work.watch != nil && sameWatch(w.work.watching, wanted) {
		return false
	}
	stopTask(&w.work.watch)
	options := w.onHost(fmt.Sprintf("watch process %d of %s", w.Process.PID, w.name()), watchLength)
	options.silent = heartbeatTimeout
	w.work.watching = wanted
	run(w, &w.work.watch, &w.facts.watch, api.ActivityWatch, options, wanted)
	return false
}

func sameWatch(a, b api.WatchRequest) bool {
	return a.Process == b.Process && a.Probe == b.Probe && a.Failures == b.Failures && a.Rules == b.Rules
}

// drain takes no new lease and waits for what is in flight, at most rotation.drain_timeout.
func (w *worker) drain() bool {
	w.absorb(false)
	if r := w.facts.stop; r.wanted {
		w.facts.stop = request{}
		w.rest(r.rest)
		w.next(lifecycle.Stop, r.reason, nil)
		return true
	}
	if a := taken(&w.facts.watch); a != nil && a.err != nil {
		w.seeLast(a.err)
	} else if a != nil && a.result.Exit != nil {
		w.see(a.result.Usage)
		w.exited(a.result.Exit, a.result.Reason)
		return true
	}
	limit := w.Spec.Rotation.DrainTimeout.D()
	if a := taken(&w.facts.drained); a != nil && a.err == nil {
		if a.result.Checkin != nil {
			w.checkin(*a.result.Checkin)
		}
		if a.result.Cut > 0 {
			w.cut(a.result.Cut)
			w.next(lifecycle.DrainTimeout, w.cutReason(a.result.Cut), nil)
			return true
		}
	}
	over := w.Lease == nil || w.facts.drainOver
	switch {
	case over && w.Successor != nil && w.Successor.Ready != nil && w.Intent != IntentRest:
		w.facts.drainOver = false
		w.handOver()
		return true
	case w.Lease == nil:
		w.next(lifecycle.Drained, "nothing is in flight", nil)
		return true
	case w.facts.drainOver:
		w.facts.drainOver = false
		w.next(lifecycle.DrainTimeout, fmt.Sprintf("lease %s of %q was not given back within %s", w.Lease.ID, w.Lease.Holder, limit), nil)
		return true
	}
	if w.work.drainLimit == nil {
		// The host says how many calls it cut; the timer is for leases that are not given back, and for a host that is silent.
		w.timer(&w.work.drainLimit, &w.facts.drainOver, timerOptions{limit + drainSlack, "drain timeout"})
		run(w, &w.work.drain, &w.facts.drained, api.ActivityDrain, w.onHost("drain: wait for calls in flight", limit+slack),
			api.DrainRequest{Process: w.process(), Timeout: w.Spec.Rotation.DrainTimeout})
	}
	return false
}

// drainSlack is what the host's own answer to a drain may take after the drain timeout.
const drainSlack = 250 * time.Millisecond
