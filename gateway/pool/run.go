package pool

import (
	"time"

	"github.com/tempool/tempool/internal/sleep"
)

const (
	// controlTimeout bounds one request about a lease.
	controlTimeout = 5 * time.Second
	// queueTick is the interval of ticks while calls or clients wait.
	queueTick = 20 * time.Millisecond
	// minTick is the least time between two ticks, which bounds the load of a busy queue.
	minTick = time.Millisecond
	// idleTick is the time to the next tick when nothing is due: a notify comes first.
	idleTick = time.Hour
)

// run does what no call does by itself, until the Dispatcher closes or evicts the pool: it starts what waits when
// workers open, asks who has leased them, and ends what has expired.
func (p *poolState) run() {
	life := p.dispatcher.life.Done()
	timer := time.NewTimer(minTick)
	defer timer.Stop()
	for {
		select {
		case <-life:
			return
		case <-p.wake:
		case <-timer.C:
		}
		next := p.tick()
		if p.dispatcher.evict(p, time.Now()) {
			return
		}
		timer.Reset(max(minTick, next))
		if !sleep.For(life, minTick) {
			return
		}
	}
}

// tick does what is due and returns the time to the next tick.
func (p *poolState) tick() time.Duration {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return idleTick
	}
	defer p.notifyFreedLocked()
	p.peaks.observe(p.waitingLocked(), now) // of those that have waited since an earlier interval
	p.refreshScoresLocked(now)
	p.dispatchQueueLocked(now)
	p.referQueueLocked(now)
	p.sendElsewhereLocked(now)
	lost, waiting := p.dispatcher.monitor.lost.Load(), p.waitingLocked() > 0
	next := idleTick
	if waiting {
		next = queueTick
	}
	if p.unusedLocked(now) {
		next = p.idleSince.Add(p.dispatcher.evictAfter).Sub(now)
	}
	for _, u := range p.order {
		due, in := u.questionDueLocked(now, waiting, lost)
		if due {
			u.askLocked()
		}
		next = min(next, in, u.expireLocked(now, lost))
	}
	p.nextTick = now.Add(next)
	return next
}
