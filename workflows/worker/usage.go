package worker

import (
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// Each checkin reports the usage of its lease. The checkin of a lease that ends with its process never comes, or comes
// too late; so the host reports at the end how much the incarnation has served in all, and the worker then counts what
// no checkin has reported.

// countUsage counts what was done under a lease on an incarnation.
func (l *leases) countUsage(u api.Usage, incarnation int64) {
	l.addUsage(u)
	if incarnation != l.Machine.Incarnation {
		return
	}
	l.Process.Reported = sum(l.Process.Reported, u)
	if l.Machine.State != lifecycle.Draining {
		l.Process.Requests += max(0, u.Requests)
		l.rotator.checkRequestLimit()
	}
}

// addUsage adds usage to the worker's counters.
func (l *leases) addUsage(u api.Usage) {
	l.Counters.RequestsServed += max(0, u.Requests)
	l.Counters.RequestsFailed += max(0, u.Failed)
	l.Counters.TotalCallTimeMS += max(0, u.TotalMS)
	if u.Requests > 0 {
		l.Counters.LastRequestAt = l.Now()
	}
}

// setObservedUsage takes what the host has observed this incarnation serve so far; nil changes nothing.
func (m *monitor) setObservedUsage(u *api.Usage) {
	if u != nil {
		m.Process.Observed = *u
	}
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
