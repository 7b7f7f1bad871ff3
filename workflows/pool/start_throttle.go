package pool

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

// startsPausedReason is the reason of pending workers while the breaker is open.
const startsPausedReason = "breaker open: at least half of the pool's starts failed within a minute; one worker " +
	"tests whether starts work again"

// trialTimeout is how long one worker tests the breaker on its own before another one may.
const trialTimeout = 15 * time.Minute

// throttle permits the starts of workers one by one in two cases: while the breaker is open because too many starts
// have failed, and if start.rate_per_second limits them. Otherwise workers start without asking.
type throttle struct{ *pool }

// maxCountedStarts bounds the starts that one report counts.
const maxCountedStarts = 1000

// countStarts counts the starts that a worker reports beyond those in its previous report.
func (t throttle) countStarts(before slot, now api.RosterEntry) {
	if before.RunID != now.RunID {
		before.Starts, before.StartsFailed = 0, 0
	}
	failed := now.StartsFailed - before.StartsFailed
	succeeded := now.Starts - before.Starts - failed
	if failed <= 0 && succeeded <= 0 {
		return
	}
	failed, succeeded = min(failed, maxCountedStarts), min(succeeded, maxCountedStarts)
	wasOpen, worker := t.Breaker.Open(), t.worker(now.Slot)
	endedTrial := !wasOpen && t.Breaker.Trial == worker // with failures that it has not reported
	if endedTrial {
		t.Breaker.Trial = ""
	}
	for range succeeded {
		t.Breaker = t.Breaker.Record(worker, false, t.Now())
	}
	// The backoff of a single worker limits its starts, and what a trial's worker reports with its success failed before.
	if t.Size < 2 || endedTrial || wasOpen && !t.Breaker.Open() {
		failed = 0
	}
	for range failed {
		t.Breaker = t.Breaker.Record(worker, true, t.Now())
	}
	if t.Breaker.Open() != wasOpen {
		t.announceBreaker()
	}
}

// closeBreaker permits all starts: an operator has changed something. The failures of the trial that this ends do not
// count when its worker reports them.
func (t throttle) closeBreaker() {
	wasOpen := t.Breaker.Open()
	t.Breaker = policy.Breaker{Trial: t.Breaker.Trial}
	if wasOpen {
		t.announceBreaker()
	}
}

// announceBreaker signals every worker whether it needs permits.
func (t throttle) announceBreaker() {
	message := api.StartsPaused{}
	if t.Breaker.Open() {
		message.Reason = startsPausedReason
		t.emit(api.EventPoolHeld, api.PoolEvent{Reason: startsPausedReason})
	} else {
		t.emit(api.EventPoolReleased, api.PoolEvent{Reason: "starts are no longer held"})
	}
	workflow.GetLogger(t.Ctx).Warn("breaker changed", "pool", t.name(), "open", t.Breaker.Open(), "reason", message.Reason)
	for i := range t.Roster {
		if s := t.Roster[i]; s.Started && !s.Gone && !s.isStarting() {
			t.signalWorker(s.Slot, api.SignalStartsPaused, message)
		}
	}
}

// requested queues a worker's request for a permit.
func (t throttle) requested(r api.StartRequested) {
	if t.Stopping || t.slot(r.Slot) == nil {
		return
	}
	if slices.Contains(t.StartRequests, r) {
		return // asked again, it keeps its place
	}
	t.StartRequests = slices.DeleteFunc(t.StartRequests, func(w api.StartRequested) bool { return w.Slot == r.Slot })
	at := len(t.StartRequests)
	if t.Breaker.Open() && t.worker(r.Slot) == t.Breaker.Trial {
		at = 0 // its permit was lost, and the others wait for it
	}
	t.StartRequests = slices.Insert(t.StartRequests, at, r)
}

// release permits the queued starts that may go, in order, and wakes the loop for the next one. It reports whether it
// permitted any.
func (t throttle) release() bool {
	t.StartRequests = slices.DeleteFunc(t.StartRequests, func(r api.StartRequested) bool {
		s := t.slot(r.Slot)
		return s == nil || s.Gone || s.Removing || r.Incarnation < s.Incarnation ||
			r.Incarnation == s.Incarnation && s.State != lifecycle.Pending && s.State != lifecycle.Created && !s.State.Outcome()
	})
	if t.Breaker.Open() && t.allServing() {
		t.closeBreaker() // workers that an operator restarted asked for no permit, so no trial closes it
	}
	if t.trialOver() {
		t.Breaker = t.Breaker.GaveUp(t.Now())
	}
	permitted := false
	for len(t.StartRequests) > 0 {
		request := t.StartRequests[0]
		if wait := t.admit(t.worker(request.Slot)); wait > 0 {
			t.wakeAfter(wait)
			break
		}
		t.StartRequests = t.StartRequests[1:]
		permit := api.StartPermitted{Incarnation: request.Incarnation}
		if t.Breaker.Open() {
			permit.Pause = spec.Duration(policy.BreakerPause)
		}
		t.signalWorker(request.Slot, api.SignalStartPermitted, permit)
		permitted = true
	}
	return permitted
}

// trialOver reports whether the worker that tests the breaker will not start: it gave up, rests, or is gone.
func (t throttle) trialOver() bool {
	if !t.Breaker.Open() || t.Breaker.Trial == "" {
		return false
	}
	if t.Now().Sub(t.Breaker.TrialAt) > trialTimeout {
		return true // its permit, or the report of its end, may be lost
	}
	_, number, err := api.ParseWorkerName(t.Breaker.Trial)
	s := t.slot(number)
	return err != nil || s == nil || s.Gone || s.Removing || s.Resting || !t.isMember(number)
}

// allServing reports whether every slot has a process in service.
func (t throttle) allServing() bool {
	_, down := t.members.byService()
	return len(down) == 0
}

// admit returns how long one start has to wait, and counts it if it may go.
func (t throttle) admit(worker string) (wait time.Duration) {
	if t.Breaker, wait = t.Breaker.Ask(worker, t.Now()); wait == 0 {
		t.NextStart, wait = policy.StartAtRate(t.Spec.Start.RatePerSecond, t.NextStart, t.Now())
	}
	return wait
}
