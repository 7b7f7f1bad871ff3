package pool

import "time"

// poolEvictAfter is how long the state of a pool without workers and callers is kept: as long as its last calls are
// reported.
const poolEvictAfter = workerStatsExpiry

// unusedLocked reports whether the pool has no worker, no queued call or client, and no checkout, and records since
// when.
func (p *poolState) unusedLocked(now time.Time) bool {
	if len(p.order) > 0 || p.waitingLocked() > 0 || p.checkouts > 0 || p.referring {
		p.idleSince = time.Time{}
		return false
	}
	if p.idleSince.IsZero() {
		p.idleSince = now
	}
	if p.roster.at.After(p.idleSince) {
		p.idleSince = p.roster.at
	}
	return true
}

// evict removes the state of a pool that has been unused for evictAfter, and reports whether it did. Goroutines that
// still have the state use its successor.
func (d *Dispatcher) evict(p *poolState, now time.Time) bool {
	if !p.evictDue(now, false) { // the usual case, which does not block the Dispatcher
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing || !p.evictDue(now, true) {
		return false
	}
	delete(d.pools, p.pool)
	if d.config.Affinity != nil {
		d.config.Affinity.ForgetLookups(p.pool)
	}
	return true
}

// evictDue reports whether the pool has been unused for evictAfter. With mark it marks such a pool as evicted.
func (p *poolState) evictDue(now time.Time, mark bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	due := p.unusedLocked(now) && now.Sub(p.idleSince) >= p.dispatcher.evictAfter
	p.evicted = due && mark
	return due
}
