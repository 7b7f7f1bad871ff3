package worker

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// What a worker has served is told by checkins, lease by lease. The checkin of a lease that ends with its process never comes, or
// comes too late; so the host tells at the end how much the incarnation has served in all, and what no checkin had told of is
// counted then. Both count the same calls: an incarnation has served whichever is more.

// countUsage takes what was done under a lease on an incarnation.
func (w *worker) countUsage(u api.Usage, incarnation int64) {
	w.addUsage(u)
	if incarnation != w.Machine.Incarnation {
		return
	}
	w.Process.Reported = sum(w.Process.Reported, u)
	if w.Machine.State != lifecycle.Draining {
		w.Process.Requests += max(0, u.Requests)
		w.checkRequestLimit()
	}
}

// limitsApplied hears which limits the process has now.
func (w *worker) limitsApplied(l api.LimitsApplied) {
	if l.Incarnation != w.Machine.Incarnation || !w.Machine.State.Live() {
		return
	}
	l.At = w.now()
	w.Process.LimitsApplied = &l
	if l.Limits != nil {
		w.Process.Limits = l.Limits
	}
	w.record(lifecycle.LimitsApplied, l.Reason)
	w.warn("a process has new limits", l.Reason)
}

// addUsage counts calls for the worker as a whole.
func (w *worker) addUsage(u api.Usage) {
	w.Counters.RequestsServed += max(0, u.Requests)
	w.Counters.RequestsFailed += max(0, u.Failed)
	w.Counters.TotalCallTimeMS += max(0, u.TotalMS)
	if u.Requests > 0 {
		w.Counters.LastRequestAt = w.now()
	}
}

// setObservedUsage takes what the host has seen this incarnation serve so far; nil is nothing new.
func (w *worker) setObservedUsage(u *api.Usage) {
	if u != nil {
		w.Process.Observed = *u
	}
}

// setHeartbeatUsage takes what the last heartbeat of a Watch told that was not heard of again.
func (w *worker) setHeartbeatUsage(err error) {
	var timeout *temporal.TimeoutError
	var beat api.WatchHeartbeat
	if errors.As(err, &timeout) && timeout.HasLastHeartbeatDetails() && timeout.LastHeartbeatDetails(&beat) == nil {
		w.setObservedUsage(&beat.Usage)
	}
}

// sum adds usages; what is below zero counts as nothing.
func sum(a, b api.Usage) api.Usage {
	return api.Usage{
		Requests: a.Requests + max(0, b.Requests), Failed: a.Failed + max(0, b.Failed), TotalMS: a.TotalMS + max(0, b.TotalMS),
	}
}

// unreported is what a host has seen and no checkin has told of.
func unreported(seen, told api.Usage) api.Usage {
	return api.Usage{Requests: max(0, seen.Requests-told.Requests), Failed: max(0, seen.Failed-told.Failed), TotalMS: max(0, seen.TotalMS-told.TotalMS)}
}
