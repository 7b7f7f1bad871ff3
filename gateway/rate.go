package gateway

import (
	"time"

	"github.com/tempool/tempool/api"
)

// window counts calls so that never more than limit begin within any minute: sixty buckets of a second, of which the oldest is
// forgotten only when all of it is more than a minute old.
type window struct {
	limit   int
	buckets [61]int
	sum     int
	second  int64 // of the newest bucket, in Unix time
}

func newWindow(limit int) *window { return &window{limit: limit} }

// advance forgets the buckets that are over a minute old.
func (w *window) advance(now time.Time) {
	second := now.Unix()
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

// full reports whether a call must not begin now, and if so after which time one may.
func (w *window) full(now time.Time) (bool, time.Duration) {
	w.advance(now)
	if w.sum < w.limit {
		return false, 0
	}
	for age := int64(len(w.buckets)) - 1; age >= 0; age-- {
		if oldest := w.second - age; oldest >= 0 && w.buckets[oldest%int64(len(w.buckets))] > 0 {
			return true, time.Unix(oldest+int64(len(w.buckets)), 0).Sub(now)
		}
	}
	return true, time.Minute // a limit of none at all
}

// add counts a call that begins now, after advance.
func (w *window) add() {
	w.sum++
	w.buckets[w.second%int64(len(w.buckets))]++
}

// limited reports whether the worker has had its calls of this minute, under mu.
func (d *desk) limited(s *seat, now time.Time) bool {
	w := d.rates[s.worker]
	if w == nil {
		return false
	}
	full, _ := w.full(now)
	return full
}

// spend counts a call of the worker against limits.calls_per_minute, or refuses it with CodeRateLimited, under mu.
func (d *desk) spend(s *seat, now time.Time) error {
	w := d.rates[s.worker]
	if w == nil {
		return nil
	}
	if full, wait := w.full(now); full {
		return rateLimited(s.worker, w.limit, wait)
	}
	w.add()
	return nil
}

// exhausted is the refusal of a call when every worker here has had its calls of this minute, or nil, under mu.
func (d *desk) exhausted(now time.Time) error {
	soonest, limit, any := time.Minute, 0, false
	for _, s := range d.order {
		if s.gone {
			continue
		}
		w := d.rates[s.worker]
		if w == nil {
			return nil
		}
		full, wait := w.full(now)
		if !full {
			return nil
		}
		soonest, limit, any = min(soonest, wait), w.limit, true
	}
	if !any {
		return nil
	}
	return rateLimited("every worker of pool "+d.pool+" on this host", limit, soonest)
}

func rateLimited(who string, limit int, wait time.Duration) *api.Error {
	return api.Errorf(api.CodeRateLimited, "%s has had its %d calls of this minute (limits.calls_per_minute)", who, limit).After(wait)
}
