package lease

import (
	"sync"
	"time"

	"github.com/tempool/tempool/api"
)

// A lease's life is measured here by this host's monotonic clock, from a duration: a lease lasts its TTL from the
// request that got it. The clocks of this host and of Temporal are never compared as such, so they may differ by any
// amount. Of a lease that somebody else took, only the expiry by Temporal's clock is known; Clock says when
// that is here.
//
// A Clock does not follow Temporal's clock back: after it ran ahead for a moment, other clients' leases end early here
// until the agent restarts. To tell a step back from a late answer takes an upper bound of Temporal's time, but a
// workflow answers with the time of its newest task, which may be long past, and which the SDK never sets back.

// Clock relates Temporal's clock to this host's by the answers that carry Temporal's time: the one with the
// least delay counts. The zero value knows nothing. It is safe for concurrent use.
type Clock struct {
	mu       sync.Mutex
	received time.Time // here; zero while nothing is known
	was      time.Time // by Temporal's clock, or a little later than received
}

// clockDrift bounds how far two clocks move apart: an older answer counts for less.
const clockDrift = 1.0 / 1000

// Observe takes an answer, received now, that Temporal made at was or later.
func (c *Clock) Observe(was, now time.Time) {
	if was.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.received.IsZero() {
		age := now.Sub(c.received)
		if expected := c.was.Add(age - time.Duration(clockDrift*float64(age))); was.Before(expected) {
			return // it was longer on its way
		}
	}
	c.received, c.was = now, was
}

// Expiry is when a lease ends that lasts its TTL from an answer to a request sent at sent.
func Expiry(lease api.Lease, sent time.Time) time.Time { return sent.Add(lease.TTL()) }

// ExpiryOf is when a lease ends that the state of its worker shows, which was asked for at sent.
func (c *Clock) ExpiryOf(lease api.Lease, sent time.Time) time.Time {
	latest := Expiry(lease, sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if here := c.received.Add(lease.ExpiresAt.Sub(c.was)); !c.received.IsZero() && here.Before(latest) {
		return here
	}
	return latest
}
