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

func (w *worker) settle() bool {
	switch w.Machine.State {
	case lifecycle.Created:
		return w.begin()
	case lifecycle.Pending:
		return w.pend()
	case lifecycle.Starting:
		return w.start()
	case lifecycle.Ready, lifecycle.Busy, lifecycle.Degraded, lifecycle.Suspended:
		return w.serve()
	case lifecycle.Draining:
		return w.drain()
	case lifecycle.Stopping:
		return w.stop()
	}
	return w.decide()
}

// begin leaves created: the first incarnation, unless the worker was asked to end before it had one.
func (w *worker) begin() bool {
	if r, rest := w.takeEnding(); r.wanted {
		w.rest(rest)
		w.next(lifecycle.Stop, r.reason, nil)
		return true
	}
	w.place("first start of this worker")
	return true
}

// place begins the next incarnation, once the pool lets it where that has to be asked.
func (w *worker) place(reason string) {
	if w.mustAsk() && !w.Released {
		w.awaitLeave(reason)
		return
	}
	w.Released = false
	w.replaced()
	if w.NextSpec != nil {
		w.Spec, w.SpecVersion, w.NextSpec = w.NextSpec.Spec, w.NextSpec.Version, nil
	}
	w.Process = RunningProcess{}
	w.Intent, w.IntentReason, w.Resting, w.GaveUp, w.Hold = IntentRecover, "", false, false, Hold{}
	w.ProbeFailures, w.LeaseErrors, w.Sample, w.Assessment = 0, 0, nil, nil
	event := lifecycle.Start
	if w.Machine.State == lifecycle.Pending {
		event = lifecycle.Release
	} else {
		w.countOn()
	}
	w.nextWith(lifecycle.Event{Kind: event, Reason: reason})
}

// countOn passes over incarnation numbers that successors had which did not make it.
func (w *worker) countOn() { w.Machine.Incarnation = max(w.Machine.Incarnation, w.Reached) }

// start waits for the process to be spawned, to answer its handshake and to finish its warm-up.
func (w *worker) start() bool {
	if r, rest := w.takeEnding(); r.wanted {
		w.rest(rest)
		w.next(lifecycle.Stop, r.reason, nil)
		return true
	}
	if r := w.takeRestart(); r.wanted {
		w.Cause = r.cause
		w.intend(IntentReplace, r.reason)
		w.next(lifecycle.Stop, r.reason, nil)
		return true
	}
	if a := taken(&w.facts.start); a != nil {
		w.retrace(a)
		w.tally(a.err)
		w.started(a)
		return true
	}
	if w.work.start == nil {
		w.work.tries = w.tries()
		run(w, &w.work.start, &w.facts.start, api.ActivityStart, activityOptions{
			queue:   api.PlacementQueue(w.Spec.Pool.Placement),
			summary: fmt.Sprintf("start incarnation %d of %s", w.Machine.Incarnation, w.name()),
			toStart: placementPatience, toClose: w.Spec.Start.Timeout.D() + w.recovery().Probation(w.Failures+w.work.tries-1, true) + slack,
			silent: heartbeatTimeout, awaitCancel: true, tries: w.work.tries,
		}, api.StartRequest{Process: w.process(), Spec: w.Spec, KeepIncarnations: w.leaving(), MaxAttempts: w.work.tries, Failures: w.Failures, ShortLived: w.Brief})
	}
	return false
}

func (w *worker) started(a *answer[api.StartResult]) {
	switch {
	case a.err == nil:
		w.occupy(a.result)
		reason := fmt.Sprintf("process %d on host %s was ready after %d ms", a.result.PID, a.result.Host, a.result.TookMS)
		w.nextWith(lifecycle.Event{Kind: lifecycle.StartSucceeded, Reason: reason, Metadata: map[string]string{
			"host": a.result.Host, "pid": fmt.Sprint(a.result.PID),
		}})
		w.drawLimit()
		w.NextCheckpoint = w.now().Add(w.Spec.Health.Checkpoint.D())
		if w.Failures > 0 { // a first look soon, and then the pool is told
			w.NextCheckpoint = w.now().Add(min(policy.SettledAfter, w.Spec.Health.Checkpoint.D()))
		} else {
			w.armLeaseTimer(w.Spec.Lease.TTL.D())
		}
	case neverStarted(a.err):
		reason := fmt.Sprintf("no agent with room took the start from %s within %s",
			api.PlacementQueue(w.Spec.Pool.Placement), placementPatience)
		w.next(lifecycle.StartFailed, reason, nil)
		w.Hold = Hold{Room: true, Reason: reason + "; start an agent with that label, or raise --capacity of one"}
	case timedOut(a.err):
		w.Cause = api.CauseHostLost
		w.intend(IntentReplace, "the host that took the start was not heard of again")
		w.next(lifecycle.StartFailed, w.IntentReason, nil)
	default:
		newest, outdated := superseded(a.err)
		w.Cause = api.CauseStartFailed
		if outdated {
			w.Cause = api.CauseSuperseded
			w.intend(IntentReplace, sentence(a.err))
		}
		w.next(lifecycle.StartFailed, sentence(a.err), nil)
		w.Machine.Incarnation = max(w.Machine.Incarnation, newest) // numbers are never used again, not even by another pool of this name
	}
}

// tally counts the end of a start that a host has taken.
func (w *worker) tally(err error) {
	_, outdated := superseded(err)
	if neverStarted(err) || outdated || temporal.IsCanceledError(err) {
		return
	}
	w.Starts++
	if err != nil {
		w.StartsFailed++
	}
}

func (w *worker) occupy(r api.StartResult) {
	w.Process = RunningProcess{Host: r.Host, PID: r.PID, StartedAt: r.StartedAt, Endpoint: r.Endpoint, Address: r.Address, Limits: r.Limits}
	w.observe(r.Sample)
}

// stop ends the process, wherever it is.
func (w *worker) stop() bool {
	w.facts.watch, w.facts.probe, w.facts.drained, w.facts.drainOver, w.facts.checkpoint = nil, nil, nil, false, false
	w.absorb(true)
	if w.work.start != nil { // stopped while starting: the process is only known when Start has ended
		w.work.start.cancel()
		return false
	}
	if a := taken(&w.facts.start); a != nil {
		w.retrace(a)
		if a.err != nil {
			w.exited(&lifecycle.Exit{Interrupted: true}, "the start was called off")
			return true
		}
		w.occupy(a.result)
	}
	if a := taken(&w.facts.stopped); a != nil {
		if a.err != nil {
			w.exited(&lifecycle.Exit{Error: "host lost"}, fmt.Sprintf("host %s did not answer when asked to stop the process: %s",
				w.Process.Host, sentence(a.err)))
		} else {
			w.see(a.result.Usage)
			w.exited(&a.result.Exit, a.result.Reason)
		}
		return true
	}
	if w.Process.Host == "" { // called off before anybody took the start
		w.exited(&lifecycle.Exit{Interrupted: true}, "it was stopped before a host had taken it")
		return true
	}
	if w.work.stop == nil {
		grace := w.Spec.Pool.StopGrace
		run(w, &w.work.stop, &w.facts.stopped, api.ActivityStop,
			w.onHost(fmt.Sprintf("stop process %d: %s", w.Process.PID, w.lastReason()), grace.D()+2*slack),
			api.StopRequest{Process: w.process(), Grace: grace, Reason: w.lastReason()})
	}
	return false
}

// exited records the end of the incarnation and of everything that belonged to it.
func (w *worker) exited(exit *lifecycle.Exit, reason string) {
	w.endLease()
	w.add(untold(w.Process.Seen, w.Process.Told))
	w.Process.Seen = api.Usage{}
	if w.Cause == "" {
		w.Cause = api.CauseExit
	}
	for _, slot := range []**task{&w.work.watch, &w.work.probe, &w.work.drain, &w.work.stop, &w.work.reset, &w.work.checkpoint, &w.work.lease, &w.work.drainLimit, &w.work.uptime} {
		stopTask(slot)
	}
	w.facts = facts{drain: w.facts.drain, stop: w.facts.stop, restart: w.facts.restart, successor: w.facts.successor}
	w.next(lifecycle.Exited, reason, exit)
}

// decide says what follows the end of an incarnation.
func (w *worker) decide() bool {
	w.learnOfSuccessor()
	if s := w.Successor; s != nil && s.Ready != nil && !w.Ending && w.Intent != IntentRest && !w.facts.stop.wanted && !w.facts.drain.wanted {
		w.takeOver()
		return true
	}
	if r := w.Rotation; r != nil && !(r.InPlace && w.Cause == r.Cause) {
		w.dropRotation()
	}
	if w.Ending {
		return false
	}
	if r := w.takeRestart(); r.wanted {
		w.Failures = 0
		w.Cause, w.Released = r.cause, true
		w.place(r.reason)
		return true
	}
	if r, rest := w.takeEnding(); r.wanted && rest {
		if w.Resting {
			w.refuse("it has ended already")
		}
		w.rest(true)
	}
	if w.Resting {
		w.facts.suspend, w.facts.resume = request{}, request{}
		return false
	}
	if w.Hold.Room {
		w.countOn()
		w.next(lifecycle.Hold, w.Hold.Reason, nil)
		return true
	}
	switch w.Intent {
	case IntentRest:
		w.Resting = true
		return true
	case IntentReplace:
		w.place(w.IntentReason)
		return true
	}
	return w.recover()
}

// recover asks the recovery policy what follows an end that nobody asked for.
func (w *worker) recover() bool {
	var healthy time.Duration
	if started := w.Machine.StartedAt; !started.IsZero() {
		healthy = w.now().Sub(started)
	}
	recovery := w.recovery()
	w.Failures, w.Brief = recovery.Counted(w.Failures, healthy), recovery.Brief(healthy)
	decision := recovery.Next(w.Failures, w.lastReason(), rand.New(workflow.GetRandomStream(w.ctx, "backoff")).Float64())
	if w.TrialPause > decision.Delay {
		decision.Delay = w.TrialPause
		decision.Reason += fmt.Sprintf(" (at least %s apart, since this worker tries for the whole pool)", w.TrialPause)
	}
	switch {
	case decision.Action == policy.GiveUp:
		w.Resting, w.TrialPause = true, 0
		w.Hold.Reason = decision.Reason
		w.GaveUp = true
		w.note(lifecycle.GaveUp, decision.Reason)
		w.tell("a worker gave up", decision.Reason)
	case decision.Delay > 0:
		w.Hold = Hold{Until: w.now().Add(decision.Delay), Reason: decision.Reason}
		w.countOn()
		w.next(lifecycle.Hold, decision.Reason, nil)
		w.tell("a worker is held back", decision.Reason)
	default:
		w.tell("a worker is restarted", decision.Reason)
		w.place(decision.Reason)
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

// intend sets what follows the end of this incarnation, unless something stronger is already to follow.
func (w *worker) intend(intent Intent, reason string) {
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
func (w *worker) rest(wanted bool) {
	if wanted {
		w.intend(IntentRest, "asked to rest")
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
