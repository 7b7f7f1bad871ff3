package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process/limits"
)

// workerStats records what the activities see of the workers of this host, and counts it by pool. It implements
// activities.Observer.
type workerStats struct {
	usage func() map[string]workerUsage // of the workers that have a process on this host

	startDuration, probeDuration            *prometheus.HistogramVec // by pool
	startFailures, probeFailures, decisions *prometheus.CounterVec   // by pool
	ended                                   *prometheus.CounterVec   // by pool and outcome

	mu      sync.Mutex
	workers map[string]*workerStat // by worker
	pools   map[string]time.Time   // when each pool was last used
}

// workerStat is one worker, through its incarnations on this host.
type workerStat struct {
	incarnation       int64 // the newest; the next three fields are about it
	unhealthy         bool
	degraded          bool
	suspended         bool
	replacementsKnown bool             // the worker's workflow has reported restarts and rotations
	restarts          map[string]int64 // by cause, as the worker's workflow counts them
	rotations         map[string]int64
	absentSince       time.Time // when the worker was first seen without a process here; zero while it has one
}

// statsRetention is how long workers and pools without a process on this host are kept.
const statsRetention = 5 * time.Minute

func newWorkerStats(usage func() map[string]workerUsage) *workerStats {
	return &workerStats{
		usage:         usage,
		startDuration: startSeconds.histogramVec(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
		probeDuration: probeSeconds.histogramVec(0.001, 0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30),
		ended:         processesEnded.counterVec(),
		startFailures: startFailures.counterVec(), probeFailures: probeFailures.counterVec(),
		decisions: decisions.counterVec(),
		workers:   make(map[string]*workerStat), pools: make(map[string]time.Time),
	}
}

// vectors are what the registry collects beside the collector.
func (l *workerStats) vectors() []prometheus.Collector {
	return []prometheus.Collector{l.startDuration, l.probeDuration, l.startFailures, l.ended, l.probeFailures, l.decisions}
}

// workerLocked returns the stat of an incarnation's worker, or nil if the worker has had a newer incarnation here.
func (l *workerStats) workerLocked(p api.Process) *workerStat {
	w := l.workers[p.Worker]
	switch {
	case w == nil:
		w = &workerStat{incarnation: p.Incarnation}
		l.workers[p.Worker] = w
	case w.incarnation > p.Incarnation:
		return nil
	case w.incarnation < p.Incarnation:
		w.incarnation, w.unhealthy, w.degraded, w.suspended = p.Incarnation, false, false, false
	}
	w.absentSince = time.Time{}
	return w
}

// poolLocked returns the pool of a worker, whose series start at 0 when it is first used; false if the name is not a
// worker's.
func (l *workerStats) poolLocked(worker string) (pool string, ok bool) {
	pool, _, err := api.ParseWorkerName(worker)
	if err != nil {
		return "", false
	}
	l.usePoolLocked(pool)
	return pool, true
}

func (l *workerStats) usePoolLocked(pool string) {
	if _, known := l.pools[pool]; !known {
		l.startDuration.WithLabelValues(pool)
		l.probeDuration.WithLabelValues(pool)
		l.startFailures.WithLabelValues(pool)
		l.probeFailures.WithLabelValues(pool)
		for _, outcome := range lifecycle.States() {
			if outcome.Outcome() {
				l.ended.WithLabelValues(pool, string(outcome))
			}
		}
		for _, d := range activities.Decisions() {
			l.decisions.WithLabelValues(pool, string(d))
		}
	}
	l.pools[pool] = time.Now()
}

func (l *workerStats) Started(p api.Process, took time.Duration) {
	usage := l.usage()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweepLocked(usage, time.Now()) // so that the maps stay small without scrapes, too
	l.workerLocked(p)
	if pool, ok := l.poolLocked(p.Worker); ok {
		l.startDuration.WithLabelValues(pool).Observe(took.Seconds())
	}
}

func (l *workerStats) StartFailed(p api.Process, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pool, ok := l.poolLocked(p.Worker); ok {
		l.startFailures.WithLabelValues(pool).Inc()
	}
}

func (l *workerStats) Watching(r api.WatchRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.workerLocked(r.Process)
	if w == nil {
		return
	}
	w.suspended, w.degraded = !r.Probe, r.Failures > 0
	w.unhealthy = w.degraded
	w.replacementsKnown, w.rotations, w.restarts = true, r.Replaced.Rotations, r.Replaced.Restarts
}

func (l *workerStats) Probed(p api.Process, took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.workerLocked(p); w != nil {
		w.unhealthy = err != nil
	}
	pool, ok := l.poolLocked(p.Worker)
	if ok && took > 0 {
		l.probeDuration.WithLabelValues(pool).Observe(took.Seconds())
	}
	if ok && err != nil {
		l.probeFailures.WithLabelValues(pool).Inc()
	}
}

// Exceeded counts nothing: the replacement is counted when it comes.
func (l *workerStats) Exceeded(api.Process, limits.Violation) {}

// Sampled counts nothing: metrics read the newest sample when they are asked.
func (l *workerStats) Sampled(api.Process, *api.Sample, int64) {}

// Ended counts a process that was ready and has ended.
func (m *Metrics) Ended(worker string, outcome lifecycle.State) {
	m.stats.mu.Lock()
	defer m.stats.mu.Unlock()
	if pool, ok := m.stats.poolLocked(worker); ok {
		m.stats.ended.WithLabelValues(pool, string(outcome)).Inc()
	}
}

// PoolDown has the metrics of a pool served here although it may have no process on this host, nor on another one.
func (m *Metrics) PoolDown(pool string) {
	m.stats.mu.Lock()
	defer m.stats.mu.Unlock()
	m.stats.usePoolLocked(pool)
}

// Decided implements activities.Observer.
func (l *workerStats) Decided(worker string, d activities.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pool, ok := l.poolLocked(worker); ok {
		l.decisions.WithLabelValues(pool, string(d)).Inc()
	}
}

// sweepLocked removes workers and pools that have had no process here for statsRetention.
func (l *workerStats) sweepLocked(usage map[string]workerUsage, now time.Time) {
	for worker, w := range l.workers {
		_, present := usage[worker]
		switch {
		case present:
			w.absentSince = time.Time{}
		case w.absentSince.IsZero():
			w.absentSince = now
		case now.Sub(w.absentSince) >= statsRetention:
			delete(l.workers, worker)
		}
	}
	used := make(map[string]bool, len(l.workers))
	for worker := range l.workers {
		if pool, _, err := api.ParseWorkerName(worker); err == nil {
			used[pool] = true
		}
	}
	for pool, lastUsed := range l.pools {
		if used[pool] || now.Sub(lastUsed) < statsRetention {
			continue
		}
		delete(l.pools, pool)
		byPool := prometheus.Labels{"pool": pool}
		l.startDuration.Delete(byPool)
		l.probeDuration.Delete(byPool)
		l.startFailures.Delete(byPool)
		l.probeFailures.Delete(byPool)
		l.decisions.DeletePartialMatch(byPool)
		l.ended.DeletePartialMatch(byPool)
	}
}
