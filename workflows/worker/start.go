package worker

import (
	"fmt"

	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// startFirst leaves created: the first incarnation, unless the worker was asked to end before it had one.
func (w *worker) startFirst() bool {
	if r, rest := w.takeEnding(); r.wanted {
		w.restIfAsked(rest)
		w.transition(lifecycle.Stop, r.reason, nil)
		return true
	}
	w.beginIncarnation("first start of this worker")
	return true
}

// place begins the next incarnation, once the pool lets it where that has to be asked.
func (w *worker) beginIncarnation(reason string) {
	if w.needsPermit() && !w.StartReleased {
		w.awaitPermit(reason)
		return
	}
	w.StartReleased = false
	w.countReplacement()
	if w.NextSpec != nil {
		w.Spec, w.SpecVersion, w.NextSpec = w.NextSpec.Spec, w.NextSpec.Version, nil
	}
	w.Process = RunningProcess{}
	w.Intent, w.IntentReason, w.Resting, w.GaveUp, w.Wait = IntentRecover, "", false, false, Wait{}
	w.ProbeFailures, w.LeaseErrors, w.Sample, w.Assessment = 0, 0, nil, nil
	event := lifecycle.Start
	if w.Machine.State == lifecycle.Pending {
		event = lifecycle.Release
	} else {
		w.skipUsedNumbers()
	}
	w.transitionWith(lifecycle.Event{Kind: event, Reason: reason})
}

// skipUsedNumbers passes over incarnation numbers that successors had which did not make it.
func (w *worker) skipUsedNumbers() {
	w.Machine.Incarnation = max(w.Machine.Incarnation, w.HighestIncarnation)
}

// start waits for the process to be spawned, to answer its handshake and to finish its warm-up.
func (w *worker) start() bool {
	if r, rest := w.takeEnding(); r.wanted {
		w.restIfAsked(rest)
		w.transition(lifecycle.Stop, r.reason, nil)
		return true
	}
	if r := w.takeRestart(); r.wanted {
		w.Cause = r.cause
		w.setIntent(IntentReplace, r.reason)
		w.transition(lifecycle.Stop, r.reason, nil)
		return true
	}
	if a := take(&w.events.start); a != nil {
		w.replayAttempts(a)
		w.countStart(a.err)
		w.startEnded(a)
		return true
	}
	if w.tasks.start == nil {
		w.tasks.attempts = w.maxAttempts()
		run(w, &w.tasks.start, &w.events.start, api.ActivityStart, activityOptions{
			queue:   api.PlacementQueue(w.Spec.Pool.Placement),
			summary: fmt.Sprintf("start incarnation %d of %s", w.Machine.Incarnation, w.name()),
			toStart: placementTimeout, toClose: w.Spec.Start.Timeout.D() + w.recovery().Probation(w.Failures+w.tasks.attempts-1, true) + slack,
			silent: loop.HeartbeatTimeout, awaitCancel: true, tries: w.tasks.attempts,
		}, api.StartRequest{Process: w.process(), Spec: w.Spec, KeepIncarnations: w.drainingNumbers(), MaxAttempts: w.tasks.attempts, Failures: w.Failures, ShortLived: w.ShortLived})
	}
	return false
}

func (w *worker) startEnded(a *completion[api.StartResult]) {
	switch {
	case a.err == nil:
		w.setProcess(a.result)
		reason := fmt.Sprintf("process %d on host %s was ready after %d ms", a.result.PID, a.result.Host, a.result.TookMS)
		w.transitionWith(lifecycle.Event{Kind: lifecycle.StartSucceeded, Reason: reason, Metadata: map[string]string{
			"host": a.result.Host, "pid": fmt.Sprint(a.result.PID),
		}})
		w.drawRequestLimit()
		w.NextCheckpoint = w.now().Add(w.Spec.Health.Checkpoint.D())
		if w.Failures > 0 { // a first look soon, and then the pool is told
			w.NextCheckpoint = w.now().Add(min(policy.SettledAfter, w.Spec.Health.Checkpoint.D()))
		} else {
			w.armLeaseTimer(w.Spec.Lease.TTL.D())
		}
	case failure.NotStarted(a.err):
		reason := fmt.Sprintf("no agent with room took the start from %s within %s",
			api.PlacementQueue(w.Spec.Pool.Placement), placementTimeout)
		w.transition(lifecycle.StartFailed, reason, nil)
		w.Wait = Wait{Capacity: true, Reason: reason + "; start an agent with that label, or raise --capacity of one"}
	case failure.TimedOut(a.err):
		w.Cause = api.CauseHostLost
		w.setIntent(IntentReplace, "the host that took the start was not heard of again")
		w.transition(lifecycle.StartFailed, w.IntentReason, nil)
	default:
		newest, outdated := failure.Superseded(a.err)
		w.Cause = api.CauseStartFailed
		if outdated {
			w.Cause = api.CauseSuperseded
			w.setIntent(IntentReplace, failure.Message(a.err))
		}
		w.transition(lifecycle.StartFailed, failure.Message(a.err), nil)
		w.Machine.Incarnation = max(w.Machine.Incarnation, newest) // numbers are never used again, not even by another pool of this name
	}
}

// countStart counts the end of a start that a host has taken.
func (w *worker) countStart(err error) {
	_, outdated := failure.Superseded(err)
	if failure.NotStarted(err) || outdated || temporal.IsCanceledError(err) {
		return
	}
	w.Starts++
	if err != nil {
		w.StartsFailed++
	}
}

func (w *worker) setProcess(r api.StartResult) {
	w.Process = RunningProcess{Host: r.Host, PID: r.PID, StartedAt: r.StartedAt, Endpoint: r.Endpoint, Address: r.Address, Limits: r.Limits}
	w.setSample(r.Sample)
}
