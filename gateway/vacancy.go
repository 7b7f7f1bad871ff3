package gateway

import "time"

// deskKept is how long the desk of a pool stays that has no worker here and is not asked for: as long as its last calls are told of.
const deskKept = accountKept

// vacant reports whether nothing is left at the desk, under mu, and notes since when.
func (d *desk) vacant(now time.Time) bool {
	if len(d.order) > 0 || d.queue.Len() > 0 || d.asking > 0 {
		d.emptied = time.Time{}
		return false
	}
	if d.emptied.IsZero() {
		d.emptied = now
	}
	if d.looked.After(d.emptied) {
		d.emptied = d.looked
	}
	return true
}

// leave closes the desk if it has been vacant for long, and reports whether it has. Whoever still has it in hand is sent on to the
// one that takes its place.
func (g *Gateway) leave(d *desk, now time.Time) bool {
	if !d.due(now, false) { // most of the time, and then nobody else is kept waiting
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing || !d.due(now, true) {
		return false
	}
	delete(g.desks, d.pool)
	return true
}

// due reports whether the desk has been vacant for long; with leave it is left then.
func (d *desk) due(now time.Time, leave bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	due := d.vacant(now) && now.Sub(d.emptied) >= d.gateway.deskKept
	d.left = due && leave
	return due
}

// lockDesk is the desk of a pool, made where it is missing, with its mu held; nil once the gateway closes.
func (g *Gateway) lockDesk(pool string) *desk {
	for {
		d := g.desk(pool)
		if d == nil {
			return nil
		}
		d.mu.Lock()
		if !d.left {
			return d
		}
		d.mu.Unlock()
	}
}
