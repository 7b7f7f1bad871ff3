package worker

import (
	"fmt"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

func (w *worker) watchEnded(a *completion[api.WatchResult]) {
	switch {
	case a.err != nil && failure.NotStarted(a.err):
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
	reason := fmt.Sprintf("host %s is lost: nobody took work from %s within %s", w.Process.Host, api.HostQueue(w.Process.Host), loop.HostTimeout)
	w.Cause = api.CauseHostLost
	w.warn("a host is lost", reason)
	w.setIntent(IntentReplace, reason)
	w.processExited(&lifecycle.Exit{Error: "host lost: " + failure.Message(err)}, reason)
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
	loop.CancelTask(&w.tasks.watch)
	options := w.onHost(fmt.Sprintf("watch process %d of %s", w.Process.PID, w.name()), watchTimeout)
	options.silent = loop.HeartbeatTimeout
	w.tasks.watchRequest = wanted
	run(w, &w.tasks.watch, &w.events.watch, api.ActivityWatch, options, wanted)
	return false
}

func sameWatch(a, b api.WatchRequest) bool {
	return a.Process == b.Process && a.Probe == b.Probe && a.Failures == b.Failures && a.Rules == b.Rules
}
