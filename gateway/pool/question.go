package pool

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/lifecycle"
)

// A gateway learns of most leases by itself: it has asked for them, or serves the first call under them. It asks the
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

// question is what is asked of a workflow: whether a client has leased its worker.
type question struct {
	asking bool
	at     time.Time // not before
	asked  int       // in a row, without an answer that settled it
	// free says that an earlier agent left the process without a lease in use. That counts while Temporal does not answer.
	free bool
	// unclaimed says that the process was taken over, and its workflow has not claimed it: what the workflow says until
	// then may be about the time before.
	unclaimed bool
}

// Claim records that the workflow of a process that was taken over has claimed it.
func (d *Dispatcher) Claim(worker string, incarnation int64) {
	u := d.upstreamOf(worker, incarnation)
	if u == nil {
		return
	}
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	if u.question.unclaimed {
		u.question.unclaimed = false
		u.pool.notify()
	}
}

// questionDueLocked reports whether to ask the worker's workflow now, and else when to look again.
func (u *upstream) questionDueLocked(now time.Time, waiting, lost bool) (due bool, in time.Duration) {
	q := &u.question
	switch l := u.lease; {
	case u.gone || u.draining || q.asking:
		return false, idleTick
	case u.unsure && q.free && lost:
		u.settleLocked()
		return false, idleTick
	case lost, q.unclaimed: // it is asked when Temporal answers again
		return false, idleTick
	case u.unsure:
	case l == nil || l.ended:
		return false, idleTick
	case now.Before(l.expires) && !waiting:
		return false, l.expires.Sub(now)
	case now.Before(l.expires) && q.at.IsZero():
		q.at = now.Add(returnedQuestion)
	case now.Before(l.expires) && now.Before(u.pool.questionAt):
		return false, u.pool.questionAt.Sub(now)
	}
	return !now.Before(q.at), max(q.at.Sub(now), queueTick)
}

// askLocked asks the worker's workflow in the background.
func (u *upstream) askLocked() {
	p, q := u.pool, &u.question
	q.asking = true
	if !u.unsure {
		p.questionAt = time.Now().Add(questionPace)
	}
	p.dispatcher.work.Go(func() {
		ctx, cancel := context.WithTimeout(p.dispatcher.life, lease.VerifyTimeout)
		defer cancel()
		sent := time.Now()
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
	if u.unsure {
		u.question.at, u.question.asked = time.Time{}, 0
		u.pool.notify()
	}
}

// learnLocked takes what the worker's workflow says about its lease. What it says may be older than what is known here.
func (u *upstream) learnLocked(state api.WorkerState, sent time.Time) {
	switch {
	case state.Incarnation < u.incarnation: // it is about to take over: nobody can have leased it
		u.settleLocked()
	case state.Incarnation > u.incarnation: // it is to be drained
	case u.lease != nil && u.lease.ref.Seq > state.LeaseSeq:
	case state.Lease != nil:
		ref, err := api.ParseLeaseID(state.Lease.ID)
		if err == nil && !ref.Older(u.newest) { // else it was returned here, and the workflow is about to learn that
			expires := u.pool.dispatcher.clock.ExpiryOf(*state.Lease, sent)
			u.adoptLocked(*state.Lease, ref, expires)
		}
	case state.State == lifecycle.Ready && u.lease != nil && len(u.lease.calls.calls) > 0:
		u.endLeaseLocked("it was checked in")
		u.doubtLocked() // until its calls have ended
	case state.State == lifecycle.Ready:
		if u.lease != nil {
			u.forgetLeaseLocked(u.lease.ref)
		}
		u.settleLocked()
	case state.State == lifecycle.Suspended && u.suspendTurn == 0: // by an order to an earlier agent
		u.suspendLocked(0, state.Reason)
		u.settleLocked()
	case state.State == lifecycle.Suspended && u.suspension != nil:
		u.settleLocked()
	}
}

// settleLocked records that no client has leased the worker, as far as its workflow has said.
func (u *upstream) settleLocked() {
	u.unsure, u.question = false, question{asking: u.question.asking}
	u.reportFatalLocked()
	u.openedLocked()
}

// doubtLocked closes the incarnation until its workflow has said who may use it.
func (u *upstream) doubtLocked() {
	u.unsure, u.question = true, question{asking: u.question.asking}
	u.pool.notify()
}
