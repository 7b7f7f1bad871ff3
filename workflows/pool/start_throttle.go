package pool

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// The pool governs its workers' starts in two cases: while its breaker is open, since too many starts have failed, and where
// start.rate_per_second bounds them. Then a worker is pending until the pool lets its start go; otherwise nobody asks.

// startRequest is a worker that waits for leave to start an incarnation.
type startRequest struct {
	Slot        int   `json:"slot"`
	Incarnation int64 `json:"incarnation"`
}

// heldReason is what workers are told while the breaker is open.
const startsHeldReason = "the pool holds its starts: at least half of them failed within a minute, so one tries whether they work again"

// countStarts counts the starts that a worker told of beyond those it had told of before.
func (p *pool) countStarts(before slot, now api.RosterEntry) {
	if before.RunID != now.RunID {
		before.Starts, before.StartsFailed = 0, 0
	}
	failed := now.StartsFailed - before.StartsFailed
	succeeded := now.Starts - before.Starts - failed
	if failed <= 0 && succeeded <= 0 {
		return
	}
	wasOpen, worker := p.Breaker.Open(), api.WorkerName(p.PoolStart.Pool, now.Slot)
	for range succeeded {
		p.Breaker = p.Breaker.Recorded(worker, false, p.now())
	}
	if p.Size < 2 { // one worker's own backoff bounds its starts; the breaker is there for many
		failed = 0
	}
	for range failed {
		p.Breaker = p.Breaker.Recorded(worker, true, p.now())
	}
	if p.Breaker.Open() != wasOpen {
		p.announceBreaker()
	}
}

// closeBreaker lets starts go again because somebody has changed something.
func (p *pool) closeBreaker() {
	wasOpen := p.Breaker.Open()
	p.Breaker = policy.Breaker{}
	if wasOpen {
		p.announceBreaker()
	}
}

// announceBreaker tells every worker whether its starts are held.
func (p *pool) announceBreaker() {
	message := api.StartsHeld{}
	if p.Breaker.Open() {
		message.Reason = startsHeldReason
	}
	workflow.GetLogger(p.ctx).Warn("the breaker of a pool has changed", "pool", p.PoolStart.Pool, "open", p.Breaker.Open(), "reason", message.Reason)
	for i := range p.Roster {
		if s := p.Roster[i]; s.Started && !s.Gone && !s.isStarting() {
			p.signalWorker(s.Slot, api.SignalStartsHeld, message, nil)
		}
	}
}

// startRequested takes a worker's wish to start.
func (p *pool) startRequested(r api.StartRequested) {
	if p.Stopping || p.slot(r.Slot) == nil {
		return
	}
	p.StartRequests = slices.DeleteFunc(p.StartRequests, func(w startRequest) bool { return w.Slot == r.Slot })
	p.StartRequests = append(p.StartRequests, startRequest{r.Slot, r.Incarnation})
}

// releaseStarts lets the starts go that may, in the order they were wished for, and sees to it that it is asked again in time.
func (p *pool) releaseStarts() bool {
	p.StartRequests = slices.DeleteFunc(p.StartRequests, func(w startRequest) bool {
		s := p.slot(w.Slot)
		return s == nil || s.Gone || s.Leaving || w.Incarnation < s.Incarnation ||
			w.Incarnation == s.Incarnation && s.State != lifecycle.Pending && s.State != lifecycle.Created && !s.State.Outcome()
	})
	if p.Breaker.Open() && p.allServing() {
		p.closeBreaker() // those that somebody restarted asked for no leave, so nobody else would tell
	}
	if p.trialOver() {
		p.Breaker = p.Breaker.GaveUp(p.now())
	}
	moved := false
	for len(p.StartRequests) > 0 {
		wish := p.StartRequests[0]
		decision := p.admitStart(api.WorkerName(p.PoolStart.Pool, wish.Slot))
		if decision.Action == policy.Wait {
			p.wakeAfter(decision.Delay)
			break
		}
		p.StartRequests = p.StartRequests[1:]
		release := api.StartReleased{Incarnation: wish.Incarnation, Reason: decision.Reason}
		if p.Breaker.Open() {
			p.Breaker = p.Breaker.TriesAlone()
			release.Pause = spec.Duration(policy.BreakerPause)
		}
		p.signalWorker(wish.Slot, api.SignalStartReleased, release, nil)
		moved = true
	}
	return moved
}

// trialOver reports whether the worker that tries for all will not come to anything: it gave up, was put to rest, or is no more.
func (p *pool) trialOver() bool {
	if !p.Breaker.Open() || p.Breaker.Trial == "" {
		return false
	}
	_, number, err := api.ParseWorkerName(p.Breaker.Trial)
	s := p.slot(number)
	return err != nil || s == nil || s.Gone || s.Leaving || s.Resting || number >= p.Size
}

// allServing reports whether every slot has a process in service.
func (p *pool) allServing() bool {
	for number := range p.Size {
		if s := p.slot(number); s == nil || !s.isServing() {
			return false
		}
	}
	return true
}

// admitStart decides about one start, and counts it if it may go.
func (p *pool) admitStart(worker string) policy.Decision {
	if p.Breaker.Open() {
		var decision policy.Decision
		p.Breaker, decision = p.Breaker.Ask(worker, p.now())
		if decision.Action == policy.Wait {
			return decision
		}
	}
	next, decision := policy.StartRate{PerSecond: p.Spec.Start.RatePerSecond}.Ask(p.NextStart, p.now())
	p.NextStart = next
	return decision
}

// wakeAfter wakes the pool after a while, or sooner if it is to be woken sooner.
func (p *pool) wakeAfter(after time.Duration) {
	at := p.now().Add(after)
	if p.wakeTimer != nil && !at.Before(p.wakeAt) {
		return
	}
	loop.CancelTask(&p.wakeTimer)
	ctx, cancel := workflow.WithCancel(p.ctx)
	t := &loop.Task{cancel, cancel}
	p.wakeTimer, p.wakeAt = t, at
	timer := workflow.NewTimerWithOptions(ctx, max(0, after), workflow.TimerOptions{Summary: "before the pool looks again"})
	p.selector.AddFuture(timer, func(workflow.Future) {
		if p.wakeTimer == t {
			loop.ReleaseTask(&p.wakeTimer)
		}
	})
}
