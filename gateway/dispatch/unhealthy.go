package dispatch

// Unhealthy ends the Dispatcher's own lease on an incarnation that is not well: no further call starts under it, and when the calls in flight
// have ended it goes back with the outcome error, which degrades the worker. A client's lease goes on.
func (d *Dispatcher) Unhealthy(worker string, incarnation int64, reason string) {
	u := d.upstreamOf(worker, incarnation)
	if u == nil {
		return
	}
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	u.degradeLocked(reason)
}

// degradeLocked is Unhealthy with the lock of the pool held.
func (u *upstream) degradeLocked(reason string) {
	if l := u.lease; l != nil && l.own && !l.ended {
		l.unhealthy = reason
		u.endLeaseLocked("the worker is not well")
		u.pool.notify()
	}
}
