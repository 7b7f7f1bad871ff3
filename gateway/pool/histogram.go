package pool

import (
	"slices"
	"sync/atomic"
	"time"
)

// callBounds and waitBounds are the upper bounds of the histogram buckets: of call times, from 50 µs to a minute, and
// of waits in the queue, from a millisecond to a minute.
var (
	callBounds = []time.Duration{
		50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
		time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
		50 * time.Millisecond,
		100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond,
		5 * time.Second,
		10 * time.Second, 30 * time.Second, time.Minute,
	}
	waitBounds = []time.Duration{
		time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
		100 * time.Millisecond,
		250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
		10 * time.Second,
		30 * time.Second, time.Minute,
	}
)

// histogram counts times in fixed buckets. observe is lock-free and does not allocate, since every call uses it.
type histogram struct {
	bounds []time.Duration // rising, shared, never changed
	counts []atomic.Uint64 // one for each bound, and one for what is beyond the last
	sum    atomic.Int64    // nanoseconds
	// examples are the newest sampled calls, one for each count.
	examples []atomic.Pointer[Exemplar]
}

// Exemplar is a call that was traced, as an example of the calls of its bucket.
type Exemplar struct {
	TraceID string // in hex
	Took    time.Duration
	At      time.Time
}

func newHistogram(bounds []time.Duration) *histogram {
	return &histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1),
		examples: make([]atomic.Pointer[Exemplar], len(bounds)+1)}
}

// observe counts a time. A time equal to a bound belongs to the bucket that the bound closes.
func (h *histogram) observe(d time.Duration) {
	i, _ := slices.BinarySearch(h.bounds, d)
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// illustrate remembers a call that was observed as the newest example of its bucket.
func (h *histogram) illustrate(e Exemplar) {
	i, _ := slices.BinarySearch(h.bounds, e.Took)
	h.examples[i].Store(&e)
}

// Times are the counts of a histogram. Buckets maps an upper bound in seconds to the number of times up to it; Count
// includes the times beyond the last bound.
type Times struct {
	Buckets map[float64]uint64
	Count   uint64
	Sum     time.Duration
	// Exemplars are examples of calls, at most one for each bucket and one beyond the last bound.
	Exemplars []Exemplar
}

// read sums up the buckets. Times observed meanwhile may be in the sum and not yet in the count.
func (h *histogram) read() Times {
	t := Times{Buckets: make(map[float64]uint64, len(h.bounds)), Sum: time.Duration(h.sum.Load())}
	for i, bound := range h.bounds {
		t.Count += h.counts[i].Load()
		t.Buckets[bound.Seconds()] = t.Count
	}
	t.Count += h.counts[len(h.bounds)].Load()
	for i := range h.examples {
		if e := h.examples[i].Load(); e != nil {
			t.Exemplars = append(t.Exemplars, *e)
		}
	}
	return t
}
