package pool

import (
	"time"

	"github.com/tempool/tempool/api"
)

// rateWindow counts calls so that at most limit start within any minute. It has 61 buckets of a second and drops the
// oldest only when all of it is more than a minute old.
type rateWindow struct {
	limit   int
	began   time.Time // of the first bucket; setting the clock does not change what is counted from it
	buckets [61]int
	sum     int
	second  int64 // of the newest bucket, after began
}

// advance drops the buckets that are more than a minute old. Callers may have looked at the clock in another order than
// they come here.
func (w *rateWindow) advance(now time.Time) {
	second := int64(now.Sub(w.began) / time.Second)
	if second-w.second >= int64(len(w.buckets)) {
		w.buckets, w.sum, w.second = [61]int{}, 0, second
		return
	}
	for w.second < second {
		w.second++
		i := w.second % int64(len(w.buckets))
		w.sum -= w.buckets[i]
		w.buckets[i] = 0
	}
}

// full reports whether no call may start now, and after which time one may.
func (w *rateWindow) full(now time.Time) (bool, time.Duration) {
	w.advance(now)
	if w.sum < w.limit {
		return false, 0
	}
	for age := int64(len(w.buckets)) - 1; age >= 0; age-- {
		if oldest := w.second - age; oldest >= 0 && w.buckets[oldest%int64(len(w.buckets))] > 0 {
			return true, w.began.Add(time.Duration(oldest+int64(len(w.buckets))) * time.Second).Sub(now)
		}
	}
	return true, time.Minute // a limit of 0
}

// add counts a call that starts now. advance must have been called with the same time.
func (w *rateWindow) add() {
	w.sum++
	w.buckets[w.second%int64(len(w.buckets))]++
}

// setRateLocked sets the worker's limit of calls per minute; 0 is none.
func (p *poolState) setRateLocked(worker string, limit int) {
	switch w := p.rates[worker]; {
	case limit <= 0:
		delete(p.rates, worker)
	case w != nil:
		w.limit = limit
	default:
		p.rates[worker] = &rateWindow{limit: limit, began: time.Now()}
	}
}

// rateLimitedLocked reports whether the worker has used up its calls of this minute.
func (p *poolState) rateLimitedLocked(u *upstream, now time.Time) bool {
	w := p.rates[u.worker]
	if w == nil {
		return false
	}
	full, _ := w.full(now)
	return full
}

// countRateLocked counts a call of the worker against limits.calls_per_minute, or rejects it with CodeRateLimited.
func (p *poolState) countRateLocked(u *upstream, now time.Time) error {
	w := p.rates[u.worker]
	if w == nil {
		return nil
	}
	if full, wait := w.full(now); full {
		return errRateLimited(u.worker, w.limit, wait)
	}
	w.add()
	return nil
}

// rateExhaustedLocked is the error of a call when every worker on this host has used up its calls of this minute, else
// nil.
func (p *poolState) rateExhaustedLocked(now time.Time) error {
	soonest, limit, limited := time.Minute, 0, false
	for _, u := range p.order {
		if u.is(gone) {
			continue
		}
		w := p.rates[u.worker]
		if w == nil {
			return nil
		}
		full, wait := w.full(now)
		if !full {
			return nil
		}
		soonest, limit, limited = min(soonest, wait), w.limit, true
	}
	if !limited {
		return nil
	}
	return errRateLimited("every worker of pool "+p.pool+" on this host", limit, soonest)
}

func errRateLimited(what string, limit int, wait time.Duration) *api.Error {
	return api.Errorf(api.CodeRateLimited, "%s reached its limit of %d calls per minute (limits.calls_per_minute)", what,
		limit).After(wait)
}
