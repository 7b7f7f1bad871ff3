package gateway

import (
	"sync/atomic"
	"time"
)

// callBounds and waitBounds are the upper bounds of the buckets of times: of calls, from a tenth of a millisecond to a minute, and
// of waits in the queue, from a millisecond to its usual timeout and beyond.
var (
	callBounds = []time.Duration{
		50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
		time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
		100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
		10 * time.Second, 30 * time.Second, time.Minute,
	}
	waitBounds = []time.Duration{
		time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
		250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
		30 * time.Second, time.Minute,
	}
)

// histogram counts times into fixed buckets. It is made for the path of a call: to observe takes no lock and no memory.
type histogram struct {
	bounds []time.Duration // rising, shared, never changed
	counts []atomic.Uint64 // one for each bound, and one for what is beyond the last
	sum    atomic.Int64    // nanoseconds
}

func newHistogram(bounds []time.Duration) *histogram {
	return &histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

// observe counts a time. One that is equal to a bound belongs below it.
func (h *histogram) observe(d time.Duration) {
	low, high := 0, len(h.bounds)
	for low < high {
		if middle := (low + high) / 2; d <= h.bounds[middle] {
			high = middle
		} else {
			low = middle + 1
		}
	}
	h.counts[low].Add(1)
	h.sum.Add(int64(d))
}

// Times is what a histogram has counted. Buckets maps an upper bound, in seconds, to how many were at most that; Count also has those
// beyond the last bound.
type Times struct {
	Buckets map[float64]uint64
	Count   uint64
	Sum     time.Duration
}

// read sums the buckets up. Times observed meanwhile may be in the sum and not yet in the count.
func (h *histogram) read() Times {
	t := Times{Buckets: make(map[float64]uint64, len(h.bounds)), Sum: time.Duration(h.sum.Load())}
	for i, bound := range h.bounds {
		t.Count += h.counts[i].Load()
		t.Buckets[bound.Seconds()] = t.Count
	}
	t.Count += h.counts[len(h.bounds)].Load()
	return t
}
