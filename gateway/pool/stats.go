package pool

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/tracecontext"
	"github.com/tempool/tempool/process"
)

// poolStats are the counts of one pool on this host.
type poolStats struct {
	calls, waits prometheus.Histogram
	figures      *figures
	refused      [len(refusalCodes)]atomic.Int64
	notReleased  atomic.Int64            // sessions whose hook session.release failed
	hits, misses atomic.Int64            // lookups of the worker of a session
	workers      map[string]*workerStats // guarded by the pool's lock
}

// workerStats counts what one worker did on this host, over all of its incarnations here. The pool's lock guards it.
type workerStats struct {
	served           process.Served
	granted, refused int64
	rate             rateWindow // of calls, if limits.calls_per_minute is set
	goneSince        time.Time  // zero while the worker has an upstream
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
// the pool. a is its arrival in the queue.
func (p *poolState) countRefusal(c *Call, err error, a arrival) {
	if err == nil || p == nil {
		return
	}
	code := api.CodeOf(err)
	if code == "" && errors.Is(err, context.DeadlineExceeded) {
		code = api.CodeDeadlineExceeded
	}
	if i := slices.Index(refusalCodes[:], code); i >= 0 {
		p.stats.refused[i].Add(1)
		now := time.Now()
		p.stats.figures.count("", code, a.waited(now), -1, now)
		p.emitRefusal(c, code, err)
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
	maps.DeleteFunc(p.stats.workers, func(_ string, s *workerStats) bool {
		return !s.goneSince.IsZero() && now.Sub(s.goneSince) >= workerStatsExpiry
	})
}

// emitFailure emits that a call failed after a worker was chosen for it. A caller that left is not a failure.
func (c *Call) emitFailure(err error, now time.Time) {
	u, code := c.upstream, api.CodeOf(err)
	if log := u.pool.dispatcher.config.Events; code != api.CodeCancelled && log.Wants(api.EventCallFailed) {
		log.Add(api.EventCallFailed, api.WorkerSource(u.worker), now, api.CallEvent{
			Host: u.pool.dispatcher.config.HostID, Incarnation: u.incarnation, Method: c.method, Code: code,
			Started: Started(err), Reason: err.Error(), TraceID: c.traceID,
		})
	}
}

// emitRefusal emits that a call was refused before a worker had it.
func (p *poolState) emitRefusal(c *Call, code api.Code, err error) {
	if log := p.dispatcher.config.Events; log.Wants(api.EventCallFailed) {
		log.Add(api.EventCallFailed, api.PoolSource(p.pool), time.Now(), api.CallEvent{
			Host: p.dispatcher.config.HostID, Method: tracecontext.Clip(c.method), Code: code, Reason: err.Error(),
			TraceID: tracecontext.ID(c.ctx),
		})
	}
}

// CallSeconds and QueueSeconds are the metrics of PoolSnapshot.Calls and Waits. Counting takes no lock and does not
// allocate, since every call does it.
var (
	CallSeconds = prometheus.HistogramOpts{Name: "tempool_pool_call_duration_seconds",
		Help: "Duration of calls that a worker of this host received, from dispatch to the end of the response.",
		Buckets: []float64{50e-6, 100e-6, 250e-6, 500e-6, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5,
			10, 30, 60}}
	QueueSeconds = prometheus.HistogramOpts{Name: "tempool_pool_queue_wait_seconds",
		Help:    "Time calls waited in this gateway, whatever the outcome. Calls that found a free worker are not included.",
		Buckets: []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}}
)

func newPoolStats(pool string) poolStats {
	seconds := func(o prometheus.HistogramOpts) prometheus.Histogram {
		o.ConstLabels = prometheus.Labels{"pool": pool}
		return prometheus.NewHistogram(o)
	}
	return poolStats{calls: seconds(CallSeconds), waits: seconds(QueueSeconds), figures: newFigures(time.Now()),
		workers: make(map[string]*workerStats)}
}

// countCall counts a call that a worker has seen. One that is sampled is the newest example of its bucket.
func (s *poolStats) countCall(took time.Duration, traceID string) {
	if traceID == "" {
		s.calls.Observe(took.Seconds())
		return
	}
	s.calls.(prometheus.ExemplarObserver).ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": traceID})
}

// observeWaitingLocked records how many wait. It must be called when the number has grown, and soon after the begin of
// an interval in which somebody waits.
func (p *poolState) observeWaitingLocked(now time.Time) {
	if waiting := int64(p.waitingLocked()); waiting > 0 {
		p.stats.figures.update(now, func(f *api.Figures) { f.Queue = max(f.Queue, waiting) })
	}
}

// RecentQueue returns the figures of the pool's last hour.
func (d *Dispatcher) RecentQueue(pool string) api.RecentQueue {
	recent := api.RecentQueue{Host: d.config.HostID, Minutes: []api.Figures{}, Methods: []api.MethodFigures{}}
	if p := d.knownPool(pool); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		now := time.Now()
		p.observeWaitingLocked(now)
		recent.Minutes, recent.Methods = p.stats.figures.lastHour(now)
	}
	return recent
}
