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
type lives struct {
	here func() map[string]bool // the workers that have a process here

	mu      sync.Mutex
	workers map[string]*life // by worker
	pools   map[string]*starts
}

// life is one worker, through its incarnations here.
type life struct {
	incarnation int64 // the newest the rest is about
	unhealthy   bool
	degraded    bool
	suspended   bool
	stopping    map[int64]bool   // incarnations that were asked to exit
	counted     bool             // its workflow has told the counts below
	restarts    map[string]int64 // by cause, as the worker's workflow counts them
	rotations   map[string]int64
	tallies     map[int64]map[string]int64 // what the program counted, by incarnation, as of the last look at each
	tallied     map[string]int64           // of incarnations that are gone
	left        time.Time                  // when it was first found without a process here; zero while it has one
}

// starts are those of one pool on this host.
type starts struct {
	took          prometheus.Histogram
	failed        int64
	probesFailed  int64
	decided       map[activities.Decision]int64
	latestMention time.Time
}

// lifeKept is how long a worker, or a pool, is remembered that has no process here any more.
const lifeKept = 5 * time.Minute

var startBuckets = []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

func newLives(here func() map[string]bool) *lives {
	return &lives{here: here, workers: make(map[string]*life), pools: make(map[string]*starts)}
}

// of is the life of an incarnation, under mu. That of an incarnation older than the newest is nil: what it does says nothing about
// the worker any more.
func (l *lives) of(p api.Process) *life {
	w := l.workers[p.Worker]
	switch {
	case w == nil:
		w = &life{incarnation: p.Incarnation, stopping: make(map[int64]bool)}
		l.workers[p.Worker] = w
	case w.incarnation > p.Incarnation:
		return nil
	case w.incarnation < p.Incarnation:
		w.incarnation, w.unhealthy, w.degraded, w.suspended = p.Incarnation, false, false, false
		maps.DeleteFunc(w.stopping, func(incarnation int64, _ bool) bool { return incarnation < p.Incarnation-stoppingKept })
	}
	w.left = time.Time{}
	return w
}

// stoppingKept bounds the incarnations of a worker that may be on their way out at one time.
const stoppingKept = 4

// starts is those of a worker's pool, under mu.
func (l *lives) starts(worker string) *starts {
	pool, _, err := api.ParseWorkerName(worker)
	if err != nil {
		return nil
	}
	s := l.pools[pool]
	if s == nil {
		s = &starts{took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: startSeconds.Name, Help: startSeconds.Help, Buckets: startBuckets, ConstLabels: prometheus.Labels{"pool": pool},
		})}
		s.decided = make(map[activities.Decision]int64)
		l.pools[pool] = s
	}
	s.latestMention = time.Now()
	return s
}

// Started is told of a process that became ready.
func (l *lives) Started(p api.Process, took time.Duration) {
	here := l.here()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(here, time.Now()) // also where nobody ever scrapes
	l.of(p)
	if s := l.starts(p.Worker); s != nil {
		s.took.Observe(took.Seconds())
	}
}

// StartFailed is told of a start that came to nothing.
func (l *lives) StartFailed(p api.Process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.starts(p.Worker); s != nil {
		s.failed++
	}
}

// Watching is told what a worker's workflow wants watched, which says what it thinks of the process.
func (l *lives) Watching(r api.WatchRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.of(r.Process)
	if w == nil {
		return
	}
	w.suspended, w.degraded = !r.Probe, r.Failures > 0
	w.unhealthy = w.degraded
	w.counted, w.rotations, w.restarts = true, r.Replaced.Rotations, r.Replaced.Restarts
}

// Probed is told how a health check went.
func (l *lives) Probed(p api.Process, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.of(p); w != nil {
		w.unhealthy = err != nil
	}
	if s := l.starts(p.Worker); s != nil && err != nil {
		s.probesFailed++
	}
}

// Stopping is told that a process is asked to exit.
func (l *lives) Stopping(p api.Process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.workers[p.Worker]; w != nil {
		w.stopping[p.Incarnation] = true
	}
}

// Decided is told what this host decided about a worker by itself.
func (l *lives) Decided(worker string, d activities.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.starts(worker); s != nil {
		s.decided[d]++
	}
}

// tally takes what the living incarnations of a worker have counted and returns the sums over all that have lived here. What one counted
// between the last look and its end is lost.
func (w *life) tally(living map[int64]map[string]int64) map[string]int64 {
	for incarnation, counts := range w.tallies {
		if _, lives := living[incarnation]; lives {
			continue
		}
		if w.tallied == nil {
			w.tallied = make(map[string]int64)
		}
		for name, n := range counts {
			if _, known := w.tallied[name]; !known && len(w.tallied) >= wire.MaxCounters {
				name = wire.OtherCounter
			}
			w.tallied[name] += n
		}
	}
	w.tallies = living
	sums := maps.Clone(w.tallied)
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

// sweep forgets workers and pools that have had no process here for lifeKept, under mu; here are the workers that have one.
func (l *lives) sweep(here map[string]bool, now time.Time) {
	for worker, w := range l.workers {
		switch {
		case here[worker]:
			w.left = time.Time{}
		case w.left.IsZero():
			w.left = now
		case now.Sub(w.left) >= lifeKept:
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
		if !living[pool] && now.Sub(s.latestMention) >= lifeKept {
			delete(l.pools, pool)
		}
	}
}

// names are the keys of a map in order.
func names[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }
