package workflows

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// What a worker has served is told by checkins, lease by lease. The checkin of a lease that ends with its process never comes, or
// comes too late; so the host tells at the end how much the incarnation has served in all, and what no checkin had told of is
// counted then. Both count the same calls: an incarnation has served whichever is more.

// count takes what was done under a lease on an incarnation.
func (w *worker) count(u api.Usage, incarnation int64) {
	w.add(u)
	if incarnation != w.Machine.Incarnation {
		return
	}
	w.Process.Told = sum(w.Process.Told, u)
	if w.Machine.State != lifecycle.Draining {
		w.Process.Requests += max(0, u.Requests)
		w.countedOut()
	}
}

// limited hears which limits the process has now.
func (w *worker) limited(l api.LimitsApplied) {
	if l.Incarnation != w.Machine.Incarnation || !w.Machine.State.Live() {
		return
	}
	l.At = w.now()
	w.Process.Applied = &l
	if l.Limits != nil {
		w.Process.Limits = l.Limits
	}
	w.note(lifecycle.LimitsApplied, l.Reason)
	w.tell("a process has new limits", l.Reason)
}

// add counts calls for the worker as a whole.
func (w *worker) add(u api.Usage) {
	w.Counters.RequestsServed += max(0, u.Requests)
	w.Counters.RequestsFailed += max(0, u.Failed)
	w.Counters.TotalCallTimeMS += max(0, u.TotalMS)
	if u.Requests > 0 {
		w.Counters.LastRequestAt = w.now()
	}
}

// see takes what the host has seen this incarnation serve so far; nil is nothing new.
func (w *worker) see(u *api.Usage) {
	if u != nil {
		w.Process.Seen = *u
	}
}

// seeLast takes what the last heartbeat of a Watch told that was not heard of again.
func (w *worker) seeLast(err error) {
	var timeout *temporal.TimeoutError
	var beat api.WatchHeartbeat
	if errors.As(err, &timeout) && timeout.HasLastHeartbeatDetails() && timeout.LastHeartbeatDetails(&beat) == nil {
		w.see(&beat.Usage)
	}
}

// sum adds usages; what is below zero counts as nothing.
func sum(a, b api.Usage) api.Usage {
	return api.Usage{
		Requests: a.Requests + max(0, b.Requests), Failed: a.Failed + max(0, b.Failed), TotalMS: a.TotalMS + max(0, b.TotalMS),
	}
}

// untold is what a host has seen and no checkin has told of.
func untold(seen, told api.Usage) api.Usage {
	return api.Usage{Requests: max(0, seen.Requests-told.Requests), Failed: max(0, seen.Failed-told.Failed), TotalMS: max(0, seen.TotalMS-told.TotalMS)}
}
