package workflows

import (
	"fmt"
	"math/rand/v2"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
)

// The story of a worker, one chapter a state: place → start → serve → drain → stop → decide what next. Each chapter acts on
// the parked facts, sees to it that the work its state needs is under way, and reports whether anything changed; settle is
// called until nothing does.

func (w *worker) reconcile() bool {
	switch w.Machine.State {
	case lifecycle.Created:
		return w.startFirst()
	case lifecycle.Pending:
		return w.awaitStart()
	case lifecycle.Starting:
		return w.start()
	case lifecycle.Ready, lifecycle.Busy, lifecycle.Degraded, lifecycle.Suspended:
		return w.serve()
	case lifecycle.Draining:
		return w.drain()
	case lifecycle.Stopping:
		return w.stop()
	}
	return w.decideNext()
}

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
			silent: HeartbeatTimeout, awaitCancel: true, tries: w.tasks.attempts,
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
	case NotStarted(a.err):
		reason := fmt.Sprintf("no agent with room took the start from %s within %s",
			api.PlacementQueue(w.Spec.Pool.Placement), placementTimeout)
		w.transition(lifecycle.StartFailed, reason, nil)
		w.Wait = Wait{Capacity: true, Reason: reason + "; start an agent with that label, or raise --capacity of one"}
	case TimedOut(a.err):
		w.Cause = api.CauseHostLost
		w.setIntent(IntentReplace, "the host that took the start was not heard of again")
		w.transition(lifecycle.StartFailed, w.IntentReason, nil)
	default:
		newest, outdated := Superseded(a.err)
		w.Cause = api.CauseStartFailed
		if outdated {
			w.Cause = api.CauseSuperseded
			w.setIntent(IntentReplace, Message(a.err))
		}
		w.transition(lifecycle.StartFailed, Message(a.err), nil)
		w.Machine.Incarnation = max(w.Machine.Incarnation, newest) // numbers are never used again, not even by another pool of this name
	}
}

// countStart counts the end of a start that a host has taken.
func (w *worker) countStart(err error) {
	_, outdated := Superseded(err)
	if NotStarted(err) || outdated || temporal.IsCanceledError(err) {
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

// stop ends the process, wherever it is.
func (w *worker) stop() bool {
	w.events.watch, w.events.probe, w.events.drained, w.events.drainTimeout, w.events.checkpoint = nil, nil, nil, false, false
	w.absorbRequests(true)
	if w.tasks.start != nil { // stopped while starting: the process is only known when Start has ended
		w.tasks.start.cancel()
		return false
	}
	if a := take(&w.events.start); a != nil {
		w.replayAttempts(a)
		if a.err != nil {
			w.processExited(&lifecycle.Exit{Interrupted: true}, "the start was called off")
			return true
		}
		w.setProcess(a.result)
	}
	if a := take(&w.events.stopped); a != nil {
		if a.err != nil {
			w.processExited(&lifecycle.Exit{Error: "host lost"}, fmt.Sprintf("host %s did not answer when asked to stop the process: %s",
				w.Process.Host, Message(a.err)))
		} else {
			w.setObservedUsage(a.result.Usage)
			w.processExited(&a.result.Exit, a.result.Reason)
		}
		return true
	}
	if w.Process.Host == "" { // called off before anybody took the start
		w.processExited(&lifecycle.Exit{Interrupted: true}, "it was stopped before a host had taken it")
		return true
	}
	if w.tasks.stop == nil {
		grace := w.Spec.Pool.StopGrace
		run(w, &w.tasks.stop, &w.events.stopped, api.ActivityStop,
			w.onHost(fmt.Sprintf("stop process %d: %s", w.Process.PID, w.lastReason()), grace.D()+2*slack),
			api.StopRequest{Process: w.process(), Grace: grace, Reason: w.lastReason()})
	}
	return false
}

// processExited records the end of the incarnation and of everything that belonged to it.
func (w *worker) processExited(exit *lifecycle.Exit, reason string) {
	w.endLease()
	w.addUsage(unreported(w.Process.Observed, w.Process.Reported))
	w.Process.Observed = api.Usage{}
	if w.Cause == "" {
		w.Cause = api.CauseExit
	}
	for _, slot := range []**task{&w.tasks.watch, &w.tasks.probe, &w.tasks.drain, &w.tasks.stop, &w.tasks.reset, &w.tasks.checkpoint, &w.tasks.lease, &w.tasks.drainLimit, &w.tasks.uptime} {
		cancelTask(slot)
	}
	w.events = pendingEvents{drain: w.events.drain, stop: w.events.stop, restart: w.events.restart, successor: w.events.successor}
	w.transition(lifecycle.Exited, reason, exit)
}

// decideNext says what follows the end of an incarnation.
func (w *worker) decideNext() bool {
	w.recordSuccessorReady()
	if s := w.Successor; s != nil && s.Ready != nil && !w.Ending && w.Intent != IntentRest && !w.events.stop.wanted && !w.events.drain.wanted {
		w.activateSuccessor()
		return true
	}
	if r := w.Rotation; r != nil && !(r.InPlace && w.Cause == r.Cause) {
		w.cancelRotation()
	}
	if w.Ending {
		return false
	}
	if r := w.takeRestart(); r.wanted {
		w.Failures = 0
		w.Cause, w.StartReleased = r.cause, true
		w.beginIncarnation(r.reason)
		return true
	}
	if r, rest := w.takeEnding(); r.wanted && rest {
		if w.Resting {
			w.refuse("it has ended already")
		}
		w.restIfAsked(true)
	}
	if w.Resting {
		w.events.suspend, w.events.resume = request{}, request{}
		return false
	}
	if w.Wait.Capacity {
		w.skipUsedNumbers()
		w.transition(lifecycle.Hold, w.Wait.Reason, nil)
		return true
	}
	switch w.Intent {
	case IntentRest:
		w.Resting = true
		return true
	case IntentReplace:
		w.beginIncarnation(w.IntentReason)
		return true
	}
	return w.recoverOrGiveUp()
}

// recoverOrGiveUp asks the recovery policy what follows an end that nobody asked for.
func (w *worker) recoverOrGiveUp() bool {
	var healthy time.Duration
	if started := w.Machine.StartedAt; !started.IsZero() {
		healthy = w.now().Sub(started)
	}
	recovery := w.recovery()
	w.Failures, w.ShortLived = recovery.Counted(w.Failures, healthy), recovery.Brief(healthy)
	decision := recovery.Next(w.Failures, w.lastReason(), rand.New(workflow.GetRandomStream(w.ctx, "backoff")).Float64())
	if w.TrialPause > decision.Delay {
		decision.Delay = w.TrialPause
		decision.Reason += fmt.Sprintf(" (at least %s apart, since this worker tries for the whole pool)", w.TrialPause)
	}
	switch {
	case decision.Action == policy.GiveUp:
		w.Resting, w.TrialPause = true, 0
		w.Wait.Reason = decision.Reason
		w.GaveUp = true
		w.record(lifecycle.GaveUp, decision.Reason)
		w.warn("a worker gave up", decision.Reason)
	case decision.Delay > 0:
		w.Wait = Wait{Until: w.now().Add(decision.Delay), Reason: decision.Reason}
		w.skipUsedNumbers()
		w.transition(lifecycle.Hold, decision.Reason, nil)
		w.warn("a worker is held back", decision.Reason)
	default:
		w.warn("a worker is restarted", decision.Reason)
		w.beginIncarnation(decision.Reason)
	}
	return true
}

func (w *worker) recovery() policy.Recovery {
	r := w.Spec.Recovery
	return policy.Recovery{
		MaxConsecutiveFailures: r.MaxConsecutiveFailures, BackoffInitial: r.BackoffInitial.D(), BackoffMax: r.BackoffMax.D(),
		BackoffMultiplier: r.BackoffMultiplier, HealthyReset: r.HealthyReset.D(),
	}
}

// setIntent sets what follows the end of this incarnation, unless something stronger is already to follow.
func (w *worker) setIntent(intent Intent, reason string) {
	if rank(intent) > rank(w.Intent) {
		w.Intent, w.IntentReason = intent, reason
	}
}

func rank(i Intent) int {
	switch i {
	case IntentReplace:
		return 1
	case IntentRest:
		return 2
	}
	return 0
}

// rest has the worker stay down after its end when that was asked for.
func (w *worker) restIfAsked(wanted bool) {
	if wanted {
		w.setIntent(IntentRest, "asked to rest")
	}
}

// lastReason is why the worker is in the state it is in.
func (w *worker) lastReason() string {
	for i := len(w.Machine.Ring) - 1; i >= 0; i-- {
		if t := w.Machine.Ring[i]; !t.Note() {
			return t.Reason
		}
	}
	return ""
}
