package worker

import (
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// The host counts the calls of an incarnation, those of the pool and those under leases, and reports the sums with its
// observations. A checkin reports the usage of its lease, which the host has counted, too, unless the calls passed it
// by. So an incarnation has served what its host has observed, or what the checkins have reported, whichever is more;
// what of that no checkin has reported is added to the counters when it has ended.

// countUsage counts what was done under a lease on an incarnation.
func (l *leases) countUsage(u api.Usage, incarnation int64) {
	l.addUsage(u)
	if incarnation != l.Machine.Incarnation {
		return
	}
	l.Process.Reported = sum(l.Process.Reported, u)
	if l.Machine.State != lifecycle.Draining {
		l.rotator.checkRequestLimit()
	}
}

// addUsage adds usage to the worker's counters.
func (l *leases) addUsage(u api.Usage) {
	l.Counters.count(u)
	if u.Requests > 0 {
		l.Counters.LastRequestAt = l.Now()
	}
}

// counters are the worker's counters with what its processes have served so far.
func (l *leases) counters() Counters {
	counters := l.Counters
	counters.count(unreported(l.Process.Observed, l.Process.Reported))
	for _, d := range l.surge.Draining {
		counters.count(unreported(d.Observed, d.Reported))
	}
	return counters
}

// counted is what the counters hold of the present process.
func (l *leases) counted() api.Usage {
	return sum(l.Process.Reported, unreported(l.Process.Observed, l.Process.Reported))
}

// count adds usage; a negative number counts as 0.
func (c *Counters) count(u api.Usage) {
	c.RequestsServed += max(0, u.Requests)
	c.RequestsFailed += max(0, u.Failed)
	c.TotalCallTimeMS += max(0, u.TotalMS)
}

// sum adds usages; a negative number counts as 0.
func sum(a, b api.Usage) api.Usage {
	return api.Usage{
		Requests: a.Requests + max(0, b.Requests), Failed: a.Failed + max(0, b.Failed),
		TotalMS: a.TotalMS + max(0, b.TotalMS),
	}
}

// unreported is the observed usage that no checkin has reported.
func unreported(observed, reported api.Usage) api.Usage {
	return api.Usage{
		Requests: max(0, observed.Requests-reported.Requests), Failed: max(0, observed.Failed-reported.Failed),
		TotalMS: max(0, observed.TotalMS-reported.TotalMS),
	}
}
