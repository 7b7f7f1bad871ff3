package pool

import (
	"slices"
	"time"

	"github.com/tempool/tempool/api"
)

// rateWindow counts the calls of a worker, by second, so that at most some number of them start within any minute. It
// drops a second only when all of it is more than a minute old.
type rateWindow struct {
	seconds []rateSecond // oldest first, without those that have no call
	sum     int
}

type rateSecond struct {
	from  time.Time
	calls int
}

// rateSpan is how long after its begin a second counts.
const rateSpan = time.Minute + time.Second

// wait is after which time a call may start: 0 if fewer than limit, which is not 0, count now.
func (w *rateWindow) wait(limit int, now time.Time) time.Duration {
	for len(w.seconds) > 0 && now.Sub(w.seconds[0].from) >= rateSpan {
		w.sum -= w.seconds[0].calls
		w.seconds = slices.Delete(w.seconds, 0, 1)
	}
	if w.sum < limit {
		return 0
	}
	return w.seconds[0].from.Add(rateSpan).Sub(now)
}

// add counts a call that starts now. Callers may have looked at the clock in another order than they come here.
func (w *rateWindow) add(now time.Time) {
	if newest := len(w.seconds) - 1; newest < 0 || now.Sub(w.seconds[newest].from) >= time.Second {
		w.seconds = append(w.seconds, rateSecond{from: now})
	}
	w.seconds[len(w.seconds)-1].calls++
	w.sum++
}

// rateWaitLocked is after which time the worker may serve a call on this incarnation, as to limits.calls_per_minute of
// its spec. The calls of an incarnation whose spec has no limit do not count.
func (u *upstream) rateWaitLocked(now time.Time) time.Duration {
	if limit := u.spec.Limits.CallsPerMinute; limit > 0 {
		return u.stats.rate.wait(limit, now)
	}
	return 0
}

// rateExhaustedLocked is the error of a call when every worker on this host has used up its calls of this minute, else
// nil.
func (p *poolState) rateExhaustedLocked(now time.Time) error {
	soonest, limit := time.Minute, 0
	for _, u := range p.order {
		if u.is(gone) || u.is(draining) {
			continue
		}
		wait := u.rateWaitLocked(now)
		if wait == 0 {
			return nil
		}
		soonest, limit = min(soonest, wait), u.spec.Limits.CallsPerMinute
	}
	if limit == 0 {
		return nil
	}
	return errRateLimited("every worker of pool "+p.pool+" on this host", limit, soonest)
}

func errRateLimited(what string, limit int, wait time.Duration) *api.Error {
	return api.Errorf(api.CodeRateLimited, "%s reached its limit of %d calls per minute (limits.calls_per_minute)", what,
		limit).After(wait)
}
