package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/limits"
)

// workerStats records what the activities see of the workers of this host, counts it by pool and emits it. It
// implements activities.Observer.
type workerStats struct {
	hostID string
	events *events.Log
	usage  func() map[string]workerUsage // of the workers that have a process on this host

	startDuration, probeDuration            *prometheus.HistogramVec // by pool
	startFailures, probeFailures, decisions *prometheus.CounterVec   // by pool
	ended                                   *prometheus.CounterVec   // by pool and outcome

	mu      sync.Mutex
	workers map[string]*workerStat // by worker
	pools   map[string]time.Time   // when each pool was last used
}

// workerStat is one worker, through its incarnations on this host.
type workerStat struct {
	incarnation       int64 // the newest; the next four fields are about it
	unhealthy         bool
	failing           bool // its last probe here failed
	degraded          bool
	suspended         bool
	replacementsKnown bool             // the worker's workflow has reported restarts and rotations
	restarts          map[string]int64 // by cause, as the worker's workflow counts them
	rotations         map[string]int64
	absentSince       time.Time // when the worker was first seen without a process here; zero while it has one
}

// statsRetention is how long workers and pools without a process on this host are kept.
const statsRetention = 5 * time.Minute

func newWorkerStats(hostID string, log *events.Log, usage func() map[string]workerUsage) *workerStats {
	return &workerStats{
		hostID: hostID, events: log, usage: usage,
		startDuration: startSeconds.histogramVec(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
		probeDuration: probeSeconds.histogramVec(0.001, 0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30),
		ended:         processesEnded.counterVec(),
		startFailures: startFailures.counterVec(), probeFailures: probeFailures.counterVec(),
		decisions: decisions.counterVec(),
		workers:   make(map[string]*workerStat), pools: make(map[string]time.Time),
	}
}

// vectors are what the registry collects beside the collector, each by pool.
func (l *workerStats) vectors() []*prometheus.MetricVec {
	return []*prometheus.MetricVec{l.startDuration.MetricVec, l.probeDuration.MetricVec, l.startFailures.MetricVec,
		l.ended.MetricVec, l.probeFailures.MetricVec, l.decisions.MetricVec}
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
		w.incarnation, w.unhealthy, w.failing, w.degraded, w.suspended = p.Incarnation, false, false, false, false
	}
	w.absentSince = time.Time{}
	return w
}

// used returns the pool, whose series start at 0 when it is first used, and stay for statsRetention.
func (l *workerStats) used(pool string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
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
	return pool
}

func (l *workerStats) emit(eventType, worker string, at time.Time, data any) {
	l.events.Emit(eventType, api.WorkerSource(worker), at, data)
}

func (l *workerStats) Started(p api.Process, info process.Info, took time.Duration) {
	l.emit(api.EventProcessStarted, p.Worker, time.Now(), api.ProcessEventData{Host: l.hostID, Incarnation: p.Incarnation,
		PID: info.PID, TookMS: info.ReadyAt.Sub(info.StartedAt).Milliseconds()})
	usage := l.usage()
	l.mu.Lock()
	l.sweepLocked(usage, time.Now()) // so that the maps stay small without scrapes, too
	l.workerLocked(p)
	l.mu.Unlock()
	l.startDuration.WithLabelValues(l.used(api.PoolOf(p.Worker))).Observe(took.Seconds())
}

func (l *workerStats) StartFailed(p api.Process, err error) {
	l.emit(api.EventProcessStartFailed, p.Worker, time.Now(), api.ProcessEventData{Host: l.hostID,
		Incarnation: p.Incarnation, Reason: err.Error()})
	l.startFailures.WithLabelValues(l.used(api.PoolOf(p.Worker))).Inc()
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

// Probed emits each failed probe, and the first of the newest incarnation that passes after it.
func (l *workerStats) Probed(p api.Process, took time.Duration, err error) {
	event := api.ProbeEvent{Host: l.hostID, Incarnation: p.Incarnation, Healthy: err == nil}
	if err != nil {
		event.Reason = err.Error()
	}
	l.mu.Lock()
	w := l.workerLocked(p)
	if err != nil || w != nil && w.failing {
		l.emit(api.EventWorkerProbed, p.Worker, time.Now(), event)
	}
	if w != nil {
		w.unhealthy, w.failing = err != nil, err != nil
	}
	l.mu.Unlock()
	pool := l.used(api.PoolOf(p.Worker))
	if took > 0 {
		l.probeDuration.WithLabelValues(pool).Observe(took.Seconds())
	}
	if err != nil {
		l.probeFailures.WithLabelValues(pool).Inc()
	}
}

// Exceeded counts nothing: the replacement is counted when it comes.
func (l *workerStats) Exceeded(p api.Process, v limits.Violation) {
	l.emit(api.EventLimitExceeded, p.Worker, v.At, api.LimitEvent{Host: l.hostID, Incarnation: p.Incarnation,
		Limit: v.Limit, Reason: v.Reason})
}

// Sampled counts nothing: metrics read the newest sample when they are asked.
func (l *workerStats) Sampled(p api.Process, s *api.Sample, requests int64) {
	l.emit(api.EventWorkerSampled, p.Worker, s.At, api.SampleEvent{Host: l.hostID, Incarnation: p.Incarnation, Sample: *s,
		Requests: requests})
}

// Ended counts and emits the end of a process that was ready. Its outcome is what this host knows: only the workflow
// knows whether the end was requested.
func (l *workerStats) Ended(p *process.Process) {
	exit := p.Exit()
	l.emit(api.EventProcessEnded, p.Worker(), time.Now(), api.ProcessEventData{Host: l.hostID,
		Incarnation: p.Incarnation(), PID: p.Info().PID, Outcome: exit.Outcome(), Code: &exit.Code, Signal: exit.Signal,
		Reason: exit.Reason})
	l.ended.WithLabelValues(l.used(api.PoolOf(p.Worker())), string(exit.Outcome())).Inc()
}

// PoolDown has the metrics of a pool served here although it may have no process on this host, nor on another one.
func (l *workerStats) PoolDown(pool string) { l.used(pool) }

// Decided implements activities.Observer.
func (l *workerStats) Decided(worker string, d activities.Decision) {
	l.decisions.WithLabelValues(l.used(api.PoolOf(worker)), string(d)).Inc()
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
		used[api.PoolOf(worker)] = true
	}
	for pool, lastUsed := range l.pools {
		if used[pool] || now.Sub(lastUsed) < statsRetention {
			continue
		}
		delete(l.pools, pool)
		for _, v := range l.vectors() {
			v.DeletePartialMatch(prometheus.Labels{"pool": pool})
		}
	}
}
