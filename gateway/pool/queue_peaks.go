package pool

import (
	"time"

	"github.com/tempool/tempool/api"
)

// queuePeaks are the most that waited at the same time, in each of the newest intervals of api.RecentQueueStep. The
// pool's lock guards them.
type queuePeaks struct {
	peaks  [api.MaxRecentSamples]int32 // a ring
	newest int                         // its index
	count  int                         // of intervals that have begun
	ends   time.Time                   // the newest interval
}

// newQueuePeaks begins the first interval.
func newQueuePeaks(now time.Time) queuePeaks {
	return queuePeaks{count: 1, ends: now.Add(api.RecentQueueStep)}
}

// observe records how many wait. It must be called when the number has grown, and soon after the begin of an interval
// in which somebody waits.
func (q *queuePeaks) observe(waiting int, now time.Time) {
	if !now.Before(q.ends) {
		q.advance(now)
	}
	if peak := &q.peaks[q.newest]; int32(waiting) > *peak {
		*peak = int32(waiting)
	}
}

// advance begins the intervals up to that of now.
func (q *queuePeaks) advance(now time.Time) {
	begun := 1 + now.Sub(q.ends)/api.RecentQueueStep
	for range min(begun, time.Duration(len(q.peaks))) {
		q.newest = (q.newest + 1) % len(q.peaks)
		q.peaks[q.newest] = 0
		q.count = min(q.count+1, len(q.peaks))
	}
	q.ends = q.ends.Add(begun * api.RecentQueueStep)
}

// read returns the intervals, of which the newest has begun, oldest first.
func (q *queuePeaks) read(now time.Time) (agesMS, waiting []int64) {
	agesMS, waiting = make([]int64, q.count), make([]int64, q.count)
	began := max(0, api.RecentQueueStep-q.ends.Sub(now)) // the newest, ago
	for i := range q.count {
		last := q.count - 1 - i
		agesMS[i] = (began + time.Duration(last)*api.RecentQueueStep).Milliseconds()
		waiting[i] = int64(q.peaks[(q.newest-last+len(q.peaks))%len(q.peaks)])
	}
	return agesMS, waiting
}

// RecentQueue returns how many calls and clients waited for a worker of the pool in the last minutes.
func (d *Dispatcher) RecentQueue(pool string) api.RecentQueue {
	recent := api.RecentQueue{Host: d.config.HostID, AgeMS: []int64{}, Waiting: []int64{}}
	if p := d.knownPool(pool); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		now := time.Now()
		p.peaks.observe(p.waitingLocked(), now)
		recent.AgeMS, recent.Waiting = p.peaks.read(now)
	}
	return recent
}
