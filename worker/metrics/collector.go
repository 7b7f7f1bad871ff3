package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/gateway/dispatch"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
)

// collector makes Tempool's own metrics anew at each scrape. It describes none of them beforehand: which series there are depends on
// which workers there are.
type collector struct {
	config Config
	lives  *lives
	pools  *poolReader
	sdk    *SDK
}

// Describe is part of prometheus.Collector. That it says nothing makes the collector an unchecked one.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// sink takes the values of one scrape.
type sink struct{ out chan<- prometheus.Metric }

func (s sink) put(m *Metric, value float64, labels ...string) {
	kind := prometheus.GaugeValue
	if m.Kind == Counter {
		kind = prometheus.CounterValue
	}
	s.out <- prometheus.MustNewConstMetric(m.desc, kind, value, labels...)
}

func (s sink) flag(m *Metric, value bool, labels ...string) {
	number := 0.0
	if value {
		number = 1
	}
	s.put(m, number, labels...)
}

func (s sink) times(m *Metric, t dispatch.Times, labels ...string) {
	s.out <- prometheus.MustNewConstHistogram(m.desc, t.Count, t.Sum.Seconds(), t.Buckets, labels...)
}

// byCause tells the counts of these causes, also of those that never were, and of any other that is counted.
func (s sink) byCause(m *Metric, counts map[string]int64, causes []api.Cause, labels ...string) {
	for _, cause := range causes {
		s.put(m, float64(counts[string(cause)]), append(labels, string(cause))...)
	}
	for cause, n := range counts {
		if !slices.Contains(causes, api.Cause(cause)) {
			s.put(m, float64(n), append(labels, cause)...)
		}
	}
}

// Collect is part of prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := sink{out}
	now := time.Now()
	snapshot := c.config.Gateway.Snapshot()
	shown := newest(c.config.Processes.List())
	c.agent(s, snapshot)
	pools := make(map[string]bool)
	for _, p := range snapshot.Pools {
		pools[p.Pool] = true
		c.pool(s, p)
	}
	c.affinity(s)
	c.lives.mu.Lock()
	c.lives.sweep(present(shown), now)
	c.starts(s, pools)
	c.workers(s, snapshot, shown)
	c.lives.mu.Unlock()
	c.standing(s, pools, snapshot.ControlPlane)
	s.put(sdkDropped, float64(c.sdk.dropped.Load()))
}

func (c *collector) agent(s sink, snapshot gateway.Snapshot) {
	s.put(buildInfo, 1, c.config.build()...)
	s.put(agentInfo, 1, c.config.HostID)
	s.put(capacity, float64(c.config.Capacity))
	s.put(processes, float64(c.config.Processes.Live()))
	s.flag(controlPlane, snapshot.ControlPlane)
	s.put(silence, snapshot.Silence.Seconds())
	s.flag(fenced, snapshot.Fenced)
	for listener, n := range snapshot.Connections {
		s.put(connections, float64(n), listener)
	}
}

func (c *collector) pool(s sink, p dispatch.PoolSnapshot) {
	s.times(callSeconds, p.Calls, p.Pool)
	s.times(queueSeconds, p.Waits, p.Pool)
	s.put(queueLength, float64(p.Waiting), p.Pool)
	for code, n := range p.Refused {
		s.put(callsRefused, float64(n), p.Pool, string(code))
	}
}

// affinity tells how calls with sessions found their workers.
func (c *collector) affinity(s sink) {
	for pool, looks := range c.config.Affinity.Pools() {
		s.put(affinityLookups, float64(looks.Hits), pool, "hit")
		s.put(affinityLookups, float64(looks.Misses), pool, "miss")
		s.put(affinityBindings, float64(looks.Bindings), pool)
	}
}

// starts tells of starts and probes, and adds their pools to those known; under lives' mu.
func (c *collector) starts(s sink, pools map[string]bool) {
	for pool, starts := range c.lives.pools {
		pools[pool] = true
		starts.took.Collect(s.out)
		s.put(startFailures, float64(starts.failed), pool)
		s.put(probeFailures, float64(starts.probesFailed), pool)
		for _, d := range activities.Decisions() {
			s.put(decisions, float64(starts.decided[d]), pool, string(d))
		}
	}
}

// standing tells what the pools' workflows know, as far as it is known.
func (c *collector) standing(s sink, pools map[string]bool, controlPlane bool) {
	for pool, status := range c.pools.read(names(pools), controlPlane) {
		s.put(poolSize, float64(status.Size), pool)
		s.put(poolReady, float64(status.Ready), pool)
		s.flag(poolHeld, status.Held != "", pool)
		s.flag(poolHalted, status.Rollout != nil && status.Rollout.Halted != "", pool)
		resting, states, out := 0, make(map[lifecycle.State]int), make(map[api.ReasonCode]int)
		for _, w := range status.Workers {
			if w.Gone {
				continue
			}
			if w.Resting {
				resting++
			}
			if w.State == lifecycle.Busy {
				w.State = lifecycle.Ready
			}
			states[w.State]++
			out[w.ReasonCode]++
		}
		for _, why := range api.ReasonCodes() {
			s.put(poolOut, float64(out[why]), pool, string(why))
		}
		s.put(poolResting, float64(resting), pool)
		for _, state := range lifecycle.States() {
			if state != lifecycle.Busy {
				s.put(poolWorkers, float64(states[state]), pool, string(state))
			}
		}
	}
}

// workers tells of each worker that was counted or has a process here; under lives' mu.
func (c *collector) workers(s sink, snapshot gateway.Snapshot, shown map[string]tree) {
	counted := make(map[string]dispatch.WorkerSnapshot)
	for _, p := range snapshot.Pools {
		for _, w := range p.Workers {
			counted[w.Worker] = w
			labels := []string{p.Pool, w.Worker}
			s.put(workerRequests, float64(w.Requests), labels...)
			s.put(workerFailed, float64(w.Failed), labels...)
			s.put(workerCallSeconds, w.CallTime.Seconds(), labels...)
			s.put(workerGranted, float64(w.Granted), labels...)
			s.put(workerRefused, float64(w.Refused), labels...)
		}
	}
	for worker, w := range c.lives.workers {
		pool, _, err := api.ParseWorkerName(worker)
		if err != nil {
			continue
		}
		for counter, n := range w.tally(shown[worker].counts) {
			s.put(workerCounted, float64(n), pool, worker, counter)
		}
		if !w.counted {
			continue
		}
		s.byCause(workerRestarts, w.restarts, restartCauses, pool, worker)
		s.byCause(workerRotations, w.rotations, rotationCauses, pool, worker)
	}
	for worker, t := range shown {
		if pool, _, err := api.ParseWorkerName(worker); err == nil {
			c.worker(s, pool, worker, t, counted[worker])
		}
	}
}

// The causes that are counted, each from 0 on, so that the first of its kind is an increase.
var (
	restartCauses = []api.Cause{
		api.CauseExit, api.CauseStartFailed, api.CauseUnhealthy, api.CauseLease, api.CauseHostLost, api.CauseSuperseded,
	}
	rotationCauses = []api.Cause{
		api.CauseRequests, api.CauseMemory, api.CauseUptime, api.CauseGrade, api.CausePrediction, api.CauseOperator,
		api.CauseSpec, api.CauseFiles, api.CausePressure, api.CauseLimits,
	}
)

// liveStates are those a worker with a process can be in.
var liveStates = []lifecycle.State{
	lifecycle.Starting, lifecycle.Ready, lifecycle.Busy, lifecycle.Degraded, lifecycle.Suspended, lifecycle.Draining, lifecycle.Stopping,
}

// worker tells of one that has a process here; under lives' mu.
func (c *collector) worker(s sink, pool, worker string, t tree, counted dispatch.WorkerSnapshot) {
	info, incarnation := t.newest.Info(), t.newest.Incarnation()
	w := c.lives.workers[worker]
	if w == nil || w.incarnation != incarnation {
		w = &life{}
	}
	state := standingOf(facts{
		ready: !info.ReadyAt.IsZero(), stopping: w.stopping[incarnation], suspended: w.suspended, degraded: w.degraded,
		draining: counted.Draining && counted.Incarnation == incarnation, leased: counted.Leased,
	})
	for _, one := range liveStates {
		s.flag(workerState, one == state, pool, worker, string(one))
	}
	s.flag(workerHealthy, !w.unhealthy, pool, worker)
	s.put(workerIncarnation, float64(incarnation), pool, worker)
	s.put(workerStart, float64(info.StartedAt.UnixMilli())/1000, pool, worker)
	s.put(workerInFlight, float64(counted.InFlight), pool, worker)
	if t.sampled {
		s.put(workerScore, c.config.Score(worker, incarnation), pool, worker)
		s.put(workerMemory, float64(t.rss), pool, worker)
		s.put(workerCPU, t.cpu/100, pool, worker)
		s.put(workerFiles, float64(t.files), pool, worker)
		s.put(workerThreads, float64(t.threads), pool, worker)
	}
}

// facts are what this host knows of a worker's process.
type facts struct {
	ready, stopping, suspended, degraded, draining, leased bool
}

// standingOf is the worker's state by what its host knows: the workflow's word may be some milliseconds ahead or behind.
func standingOf(f facts) lifecycle.State {
	switch {
	case f.stopping:
		return lifecycle.Stopping
	case !f.ready:
		return lifecycle.Starting
	case f.draining:
		return lifecycle.Draining
	case f.suspended:
		return lifecycle.Suspended
	case f.degraded:
		return lifecycle.Degraded
	case f.leased:
		return lifecycle.Busy
	}
	return lifecycle.Ready
}

// tree is what all processes of one worker use together, and the one that speaks for it: the newest that is ready, else the newest.
type tree struct {
	newest         *process.Process
	sampled        bool
	rss            int64
	cpu            float64
	files, threads int
	counts         map[int64]map[string]int64 // what the program counted, by incarnation
}

func newest(all []*process.Process) map[string]tree {
	trees := make(map[string]tree)
	for _, p := range all { // ordered by incarnation
		t := trees[p.Worker()]
		if t.newest == nil || !p.Info().ReadyAt.IsZero() {
			t.newest = p
		}
		if sample := p.LatestSample(); !sample.At.IsZero() {
			t.sampled = true
			t.rss += sample.RSSBytes
			t.cpu += sample.CPUPercent
			t.files += sample.OpenFiles
			t.threads += sample.Threads
		}
		if counts := p.Counts(); len(counts) > 0 {
			if t.counts == nil {
				t.counts = make(map[int64]map[string]int64)
			}
			t.counts[p.Incarnation()] = counts
		}
		trees[p.Worker()] = t
	}
	return trees
}

func present(trees map[string]tree) map[string]bool {
	here := make(map[string]bool, len(trees))
	for worker := range trees {
		here[worker] = true
	}
	return here
}
