package pool

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/lifecycle"
)

// A gateway knows most leases: it has asked for them, or serves the first call under them. It asks the
// worker's workflow where it cannot know: of a process that an earlier agent has served, of a lease whose time is over,
// of a lease that was returned with an error, and now and then of one that its holder may have returned without this
// gateway, while others wait. A query writes nothing.

const (
	// firstQuestion is the pause after a question that did not settle it; it doubles to lastQuestion.
	firstQuestion = 100 * time.Millisecond
	lastQuestion  = 4 * time.Second
	// returnedQuestion is the least pause between two questions whether a lease was returned before its time is over, and
	// questionPace that between two of them about any worker of the pool.
	returnedQuestion = 500 * time.Millisecond
	questionPace     = 50 * time.Millisecond
)

// question is what is asked of a workflow: whether a client has leased its worker. lease.State says when it must be.
type question struct {
	asking bool
	at     time.Time // not before
	asked  int       // in a row, without an answer that settled it
}

// Claim records that the workflow of a process that was taken over has claimed it.
func (d *Dispatcher) Claim(worker string, incarnation int64) {
	d.locked(worker, incarnation, func(u *upstream) { u.setLeasesLocked(u.leases.Claim(), "") })
}

// questionDueLocked reports whether to ask the worker's workflow now, and else when to look again.
func (u *upstream) questionDueLocked(now time.Time, waiting, lost bool) (due bool, in time.Duration) {
	q := &u.question
	if u.is(gone) || u.is(draining) || q.asking {
		return false, idleTick
	}
	if lost { // it is asked when Temporal answers again
		u.setLeasesLocked(u.leases.Assume(), "")
		return false, idleTick
	}
	if !u.leases.Asks(now, false) {
		if !u.leases.Asks(now, true) {
			return false, idleTick
		}
		if !waiting {
			return false, u.leases.Expires.Sub(now)
		}
		if q.at.IsZero() {
			q.at = now.Add(returnedQuestion)
		}
		if now.Before(u.pool.questionAt) {
			return false, u.pool.questionAt.Sub(now)
		}
	}
	return !now.Before(q.at), max(q.at.Sub(now), minTick)
}

// askLocked asks the worker's workflow in the background.
func (u *upstream) askLocked() {
	p, q := u.pool, &u.question
	q.asking = true
	if u.leases.Doubt == lease.Certain {
		p.questionAt = time.Now().Add(questionPace)
	}
	sent := time.Now()
	p.dispatcher.work.Go(func() {
		ctx, cancel := context.WithTimeout(p.dispatcher.life, lease.VerifyTimeout)
		defer cancel()
		state, err := p.dispatcher.config.Control.State(ctx, u.worker)
		now := time.Now()
		p.mu.Lock()
		defer p.mu.Unlock()
		defer p.notify()
		pause := firstQuestion << min(q.asked, 10)
		if u.lease != nil {
			pause = max(pause, returnedQuestion)
		}
		q.asking, q.at = false, now.Add(min(pause, lastQuestion))
		q.asked++
		if err == nil {
			p.dispatcher.clock.Observe(state.AsOf, now)
			u.learnLocked(state, sent)
		}
	})
}

// askSoonLocked asks a workflow again that is about to say something else.
func (u *upstream) askSoonLocked() {
	if u.leases.Doubt != lease.Certain {
		u.question.at, u.question.asked = time.Time{}, 0
		u.pool.notify()
	}
}

// learnLocked takes what the worker's workflow says about its lease, which was asked at sent. What it says may be older
// than what is known here.
func (u *upstream) learnLocked(state api.WorkerState, sent time.Time) {
	if u.is(gone) {
		return
	}
	a := lease.Answer{Incarnation: state.Incarnation, Seq: state.LeaseSeq, Settled: state.State == lifecycle.Ready,
		Sent: sent}
	if state.State == lifecycle.Suspended && state.Lease == nil && state.Incarnation == u.incarnation {
		if u.suspendGeneration == 0 { // by an order to an earlier agent
			u.suspendLocked(0, state.Reason)
		}
		a.Settled = u.suspension != nil
	}
	if state.Lease != nil {
		ref, err := api.ParseLeaseID(state.Lease.ID)
		if err != nil {
			return
		}
		a.Lease, a.Expires = ref, u.pool.dispatcher.clock.ExpiryOf(*state.Lease, sent)
	}
	next := u.leases.Learn(a, u.underLocked(u.lease))
	if next.Held != (api.LeaseRef{}) && next.Held == a.Lease {
		u.adoptLocked(*state.Lease, a.Lease, a.Expires)
		return
	}
	u.setLeasesLocked(next, "it was checked in")
}
