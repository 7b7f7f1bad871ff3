package pool

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/tracecontext"
)

// poolStats are the counts of one pool on this host.
type poolStats struct {
	calls, waits *histogram
	refused      [len(refusalCodes)]atomic.Int64
	notReleased  atomic.Int64            // sessions whose hook session.release failed
	workers      map[string]*workerStats // guarded by the pool's lock
}

// workerStats counts what one worker did on this host, over all of its incarnations here. The pool's lock guards it.
type workerStats struct {
	callCount
	granted, refused int64
	goneSince        time.Time // zero while the worker has an upstream
}

// workerStatsExpiry is how long a worker without a process here is still reported: for a scrape or two, so that its
// last calls are counted, and long enough for it to restart after a crash and continue its counts.
const workerStatsExpiry = 5 * time.Minute

// refusalCodes are the codes with which a call of a pool is refused before a worker saw it, apart from invalid
// requests.
var refusalCodes = [...]api.Code{
	api.CodeQueueFull, api.CodeQueueTimeout, api.CodeRateLimited, api.CodeNoWorkers, api.CodeUnavailable,
	api.CodeDeadlineExceeded,
}

// countRefusal counts a call that did not start. It ignores a nil error, a nil pool, and errors that say nothing about
// the pool.
func (p *poolState) countRefusal(ctx context.Context, err error) {
	if err == nil || p == nil {
		return
	}
	code := api.CodeOf(err)
	if code == "" && errors.Is(err, context.DeadlineExceeded) {
		code = api.CodeDeadlineExceeded
	}
	if i := slices.Index(refusalCodes[:], code); i >= 0 {
		p.stats.refused[i].Add(1)
		p.emitRefusal(ctx, code, err)
	}
}

// workerStatsLocked returns the counts of a worker that gets an upstream.
func (p *poolState) workerStatsLocked(worker string, now time.Time) *workerStats {
	p.expireStatsLocked(now)
	s := p.stats.workers[worker]
	if s == nil {
		s = &workerStats{}
		p.stats.workers[worker] = s
	}
	s.goneSince = time.Time{}
	return s
}

// expireStatsLocked drops the counts of workers that have had no upstream for workerStatsExpiry.
func (p *poolState) expireStatsLocked(now time.Time) {
	here := make(map[string]bool, len(p.order))
	for _, u := range p.order {
		here[u.worker] = true
	}
	for worker, s := range p.stats.workers {
		switch {
		case here[worker]:
			s.goneSince = time.Time{}
		case s.goneSince.IsZero():
			s.goneSince = now
		case now.Sub(s.goneSince) >= workerStatsExpiry:
			delete(p.stats.workers, worker)
		}
	}
}

// emitFailure emits that a call failed after a worker was chosen for it. A caller that left is not a failure.
func (c *Call) emitFailure(err error, now time.Time) {
	u, code := c.upstream, api.CodeOf(err)
	if log := u.pool.dispatcher.config.Events; code != api.CodeCancelled && log.Wants(api.EventCallFailed) {
		log.Add(api.EventCallFailed, api.WorkerSource(u.worker), now, api.CallEvent{
			Host: u.pool.dispatcher.config.HostID, Incarnation: u.incarnation, Method: c.method, Code: code,
			Started: started(err), Reason: err.Error(), TraceID: c.traceID,
		})
	}
}

// emitNotReleased emits that the process ends without releasing a session.
func (u *upstream) emitNotReleased(session string, err error) {
	if log := u.pool.dispatcher.config.Events; log.Wants(api.EventSessionNotReleased) {
		log.Add(api.EventSessionNotReleased, api.WorkerSource(u.worker), time.Now(), api.SessionEvent{
			Host: u.pool.dispatcher.config.HostID, Session: session, Worker: u.worker, Incarnation: u.incarnation,
			Reason: shorten(err.Error()),
		})
	}
}

// emitRefusal emits that a call was refused before a worker had it.
func (p *poolState) emitRefusal(ctx context.Context, code api.Code, err error) {
	if log := p.dispatcher.config.Events; log.Wants(api.EventCallFailed) {
		log.Add(api.EventCallFailed, api.PoolSource(p.pool), time.Now(), api.CallEvent{
			Host: p.dispatcher.config.HostID, Code: code, Reason: err.Error(), TraceID: tracecontext.ID(ctx),
		})
	}
}

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
