package metrics

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/wire"
)

// lives knows what the activities saw of the workers of this host. It implements activities.Observer.
type workerStats struct {
	withProcess func() map[string]bool // the workers that have a process here

	mu      sync.Mutex
	workers map[string]*workerStat // by worker
	pools   map[string]*poolStats
}

// workerStat is one worker, through its incarnations here.
type workerStat struct {
	incarnation       int64 // the newest the rest is about
	unhealthy         bool
	degraded          bool
	suspended         bool
	stopping          map[int64]bool   // incarnations that were asked to exit
	replacementsKnown bool             // its workflow has told the counts below
	restarts          map[string]int64 // by cause, as the worker's workflow counts them
	rotations         map[string]int64
	liveCounts        map[int64]map[string]int64 // what the program counted, by incarnation, as of the last look at each
	endedCounts       map[string]int64           // of incarnations that are gone
	absentSince       time.Time                  // when it was first found without a process here; zero while it has one
}

// starts are those of one pool on this host.
type poolStats struct {
	took         prometheus.Histogram
	failed       int64
	probesFailed int64
	decided      map[activities.Decision]int64
	lastUsed     time.Time
}

// statsRetention is how long a worker, or a pool, is remembered that has no process here any more.
const statsRetention = 5 * time.Minute

var startBuckets = []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

func newWorkerStats(here func() map[string]bool) *workerStats {
	return &workerStats{withProcess: here, workers: make(map[string]*workerStat), pools: make(map[string]*poolStats)}
}

// workerLocked is the life of an incarnation, under mu. That of an incarnation older than the newest is nil: what it does says nothing about
// the worker any more.
func (l *workerStats) workerLocked(p api.Process) *workerStat {
	w := l.workers[p.Worker]
	switch {
	case w == nil:
		w = &workerStat{incarnation: p.Incarnation, stopping: make(map[int64]bool)}
		l.workers[p.Worker] = w
	case w.incarnation > p.Incarnation:
		return nil
	case w.incarnation < p.Incarnation:
		w.incarnation, w.unhealthy, w.degraded, w.suspended = p.Incarnation, false, false, false
		maps.DeleteFunc(w.stopping, func(incarnation int64, _ bool) bool { return incarnation < p.Incarnation-maxStopping })
	}
	w.absentSince = time.Time{}
	return w
}

// maxStopping bounds the incarnations of a worker that may be on their way out at one time.
const maxStopping = 4

// starts is those of a worker's pool, under mu.
func (l *workerStats) poolLocked(worker string) *poolStats {
	pool, _, err := api.ParseWorkerName(worker)
	if err != nil {
		return nil
	}
	s := l.pools[pool]
	if s == nil {
		s = &poolStats{took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: startSeconds.Name, Help: startSeconds.Help, Buckets: startBuckets, ConstLabels: prometheus.Labels{"pool": pool},
		})}
		s.decided = make(map[activities.Decision]int64)
		l.pools[pool] = s
	}
	s.lastUsed = time.Now()
	return s
}

// Started is told of a process that became ready.
func (l *workerStats) Started(p api.Process, took time.Duration) {
	here := l.withProcess()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweepLocked(here, time.Now()) // also where nobody ever scrapes
	l.workerLocked(p)
	if s := l.poolLocked(p.Worker); s != nil {
		s.took.Observe(took.Seconds())
	}
}

// StartFailed is told of a start that came to nothing.
func (l *workerStats) StartFailed(p api.Process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.poolLocked(p.Worker); s != nil {
		s.failed++
	}
}

// Watching is told what a worker's workflow wants watched, which says what it thinks of the process.
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

// Probed is told how a health check went.
func (l *workerStats) Probed(p api.Process, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.workerLocked(p); w != nil {
		w.unhealthy = err != nil
	}
	if s := l.poolLocked(p.Worker); s != nil && err != nil {
		s.probesFailed++
	}
}

// Stopping is told that a process is asked to exit.
func (l *workerStats) Stopping(p api.Process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.workers[p.Worker]; w != nil {
		w.stopping[p.Incarnation] = true
	}
}

// Decided is told what this host decided about a worker by itself.
func (l *workerStats) Decided(worker string, d activities.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.poolLocked(worker); s != nil {
		s.decided[d]++
	}
}

// sumCounts takes what the living incarnations of a worker have counted and returns the sums over all that have lived here. What one counted
// between the last look and its end is lost.
func (w *workerStat) sumCounts(living map[int64]map[string]int64) map[string]int64 {
	for incarnation, counts := range w.liveCounts {
		if _, lives := living[incarnation]; lives {
			continue
		}
		if w.endedCounts == nil {
			w.endedCounts = make(map[string]int64)
		}
		for name, n := range counts {
			if _, known := w.endedCounts[name]; !known && len(w.endedCounts) >= wire.MaxCounters {
				name = wire.OtherCounter
			}
			w.endedCounts[name] += n
		}
	}
	w.liveCounts = living
	sums := maps.Clone(w.endedCounts)
	for _, counts := range living {
		for name, n := range counts {
			if sums == nil {
				sums = make(map[string]int64)
			}
			sums[name] += n
		}
	}
	return sums
}

// sweepLocked forgets workers and pools that have had no process here for statsRetention, under mu; here are the workers that have one.
func (l *workerStats) sweepLocked(here map[string]bool, now time.Time) {
	for worker, w := range l.workers {
		switch {
		case here[worker]:
			w.absentSince = time.Time{}
		case w.absentSince.IsZero():
			w.absentSince = now
		case now.Sub(w.absentSince) >= statsRetention:
			delete(l.workers, worker)
		}
	}
	living := make(map[string]bool, len(l.workers))
	for worker := range l.workers {
		if pool, _, err := api.ParseWorkerName(worker); err == nil {
			living[pool] = true
		}
	}
	for pool, s := range l.pools {
		if !living[pool] && now.Sub(s.lastUsed) >= statsRetention {
			delete(l.pools, pool)
		}
	}
}

// sortedKeys are the keys of a map in order.
func sortedKeys[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }
