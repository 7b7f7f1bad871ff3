package metrics

import (
	"cmp"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/internal/buildinfo"
	"github.com/tempool/tempool/lifecycle"
)

// collector reads the gateway, the processes and the pools at each scrape. Its series depend on which workers exist.
type collector struct {
	config  Config
	stats   *workerStats
	pools   *answers[api.PoolStatus]
	lengths *answers[int64]
	live    *answers[map[string]int]
}

// Describe implements prometheus.Collector. It sends nothing, which makes the collector an unchecked one.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// sink receives the values of one scrape.
type sink struct{ out chan<- prometheus.Metric }

func (s sink) value(m *Metric, value float64, labels ...string) {
	kind := prometheus.GaugeValue
	if m.Kind == Counter {
		kind = prometheus.CounterValue
	}
	s.out <- prometheus.MustNewConstMetric(m.desc, kind, value, labels...)
}

// assessment sends how well a worker is. A worker has no time to failure while no failure is in sight.
func (s sink) assessment(a *api.Assessment, labels ...string) {
	if a == nil {
		a = &api.Assessment{Score: 100}
	}
	s.value(workerScore, a.Score, labels...)
	if a.FailsInMS > 0 {
		s.value(workerFailsIn, float64(a.FailsInMS)/1000, labels...)
	}
}

func (s sink) flag(m *Metric, value bool, labels ...string) {
	number := 0.0
	if value {
		number = 1
	}
	s.value(m, number, labels...)
}

// byCause sends a value for each of these causes, 0 included, and for every other cause in counts.
func (s sink) byCause(m *Metric, counts map[string]int64, causes []api.Cause, labels ...string) {
	for _, cause := range causes {
		s.value(m, float64(counts[string(cause)]), append(labels, string(cause))...)
	}
	for cause, n := range counts {
		if !slices.Contains(causes, api.Cause(cause)) {
			s.value(m, float64(n), append(labels, cause)...)
		}
	}
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := sink{out}
	snapshot := c.config.Gateway.Snapshot()
	usage := usageByWorker(c.config.Processes.List())
	c.agent(s, snapshot)
	pools := make(map[string]bool)
	for _, p := range snapshot.Pools {
		pools[p.Pool] = true
		c.pool(s, p)
		if counts, found := snapshot.MCP[p.Pool]; found {
			s.value(mcpSessions, float64(counts.Sessions), p.Pool)
			s.value(mcpStreams, float64(counts.Streams), p.Pool)
			s.value(mcpReplays, float64(counts.Replays), p.Pool)
		}
	}
	c.stats.mu.Lock()
	c.stats.sweepLocked(usage, time.Now())
	for pool := range c.stats.pools {
		pools[pool] = true
	}
	for worker := range usage { // the first start of a pool takes as long as it takes
		pools[api.PoolOf(worker)] = true
	}
	c.workersLocked(s, snapshot, usage)
	c.stats.mu.Unlock()
	var asking sync.WaitGroup // at once, since each may take as long as a scrape waits
	asking.Go(func() { c.sessions(s) })
	asking.Go(func() { c.poolStatus(s, slices.Sorted(maps.Keys(pools)), snapshot.ControlPlane) })
	asking.Go(func() { c.histories(s, pools, usage, snapshot.ControlPlane) })
	asking.Wait()
}

// histories sends the lengths of the histories of pools and of the workers that have a process here.
func (c *collector) histories(s sink, pools map[string]bool, usage map[string]workerUsage, controlPlane bool) {
	var ids []string
	for pool := range pools {
		ids = append(ids, api.PoolWorkflowID(pool))
	}
	for worker := range usage {
		ids = append(ids, api.PoolWorkflowID("")+worker)
	}
	for id, events := range c.lengths.read(ids, controlPlane) {
		name := strings.TrimPrefix(id, api.PoolWorkflowID(""))
		if pool, _, err := api.ParseWorkerName(name); err == nil {
			s.value(workerHistory, float64(events), pool, name)
		} else {
			s.value(poolHistory, float64(events), name)
		}
	}
}

func (c *collector) agent(s sink, snapshot gateway.Snapshot) {
	build := buildinfo.Read()
	s.value(buildInfo, 1, build.Version, cmp.Or(build.Commit, "unknown"), runtime.Version())
	s.value(agentInfo, 1, c.config.HostID)
	s.value(capacity, float64(c.config.Capacity))
	s.value(processes, float64(c.config.Processes.Live()))
	s.value(abandoned, float64(c.config.Processes.AbandonedFunctions()))
	for eventType, n := range snapshot.EventsOmitted {
		s.value(eventsOmitted, float64(n), eventType)
	}
	s.value(eventsMissed, float64(snapshot.EventsMissed), "stream")
	if c.config.Webhook != nil {
		d := c.config.Webhook()
		s.value(eventsMissed, float64(d.Missed), "webhook")
		s.value(eventsPosted, float64(d.Delivered))
		s.value(eventPostsFailed, float64(d.Failed))
	}
	if c.config.Spans != nil {
		exported, dropped := c.config.Spans()
		s.value(spansExported, float64(exported))
		s.value(spansDropped, float64(dropped))
	}
	s.flag(controlPlane, snapshot.ControlPlane)
	s.value(controlPlaneOutage, snapshot.Outage.Seconds())
	s.flag(fenced, snapshot.Fenced)
	for listener, n := range snapshot.Connections {
		s.value(connections, float64(n), listener)
	}
	s.value(agentEpoch, float64(c.config.Epoch()))
	s.value(logLinesDropped, float64(c.config.LogLinesDropped()))
	s.value(sdkDropped, float64(c.config.SDK.dropped.Load()))
}

func (c *collector) pool(s sink, p pool.PoolSnapshot) {
	s.out <- p.Calls
	s.out <- p.Waits
	s.value(queueLength, float64(p.Waiting), p.Pool)
	s.value(sessionsNotReleased, float64(p.NotReleased), p.Pool)
	s.value(affinityLookups, float64(p.Hits), p.Pool, "hit")
	s.value(affinityLookups, float64(p.Misses), p.Pool, "miss")
	s.value(affinityBindings, float64(p.Bindings), p.Pool)
	for code, n := range p.Refused {
		s.value(callsRefused, float64(n), p.Pool, string(code))
	}
}

func (c *collector) sessions(s sink) {
	for store, n := range c.live.read([]string{""}, true)[""] {
		s.value(sessionsLive, float64(n), store)
	}
}

// poolStatus sends the status of pools as their workflows report it.
func (c *collector) poolStatus(s sink, pools []string, controlPlane bool) {
	for pool, status := range c.pools.read(pools, controlPlane) {
		if status.Stopping {
			status.Size = 0
		}
		s.value(poolSize, float64(status.Size), pool)
		if status.Scale != nil {
			s.value(poolWanted, float64(status.Scale.Wanted), pool, status.Scale.Cause)
		}
		s.value(poolReady, float64(status.Ready), pool)
		s.flag(poolStartsHeld, status.StartsPaused != "", pool)
		s.flag(poolRolloutHalted, status.Rollout.Failed(), pool)
		resting, states, reasons := 0, make(map[lifecycle.State]int), make(map[api.ReasonCode]int)
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
			reasons[w.ReasonCode]++
		}
		for _, reason := range api.ReasonCodes() {
			s.value(poolOutOfService, float64(reasons[reason]), pool, string(reason))
		}
		s.value(poolResting, float64(resting), pool)
		for _, state := range lifecycle.States() {
			if state != lifecycle.Busy {
				s.value(poolWorkers, float64(states[state]), pool, string(state))
			}
		}
	}
}

// The causes whose counts start at 0, so that the first restart of a cause is an increase.
var (
	restartCauses = []api.Cause{
		api.CauseExit, api.CauseStartFailed, api.CauseUnhealthy, api.CauseLease, api.CauseCutCall, api.CauseHostLost,
		api.CauseSuperseded,
	}
	rotationCauses = []api.Cause{
		api.CauseRequests, api.CauseMemory, api.CauseUptime, api.CauseGrade, api.CausePrediction, api.CauseOperator,
		api.CauseSpec, api.CauseFiles, api.CausePressure, api.CauseLimits,
	}
)

// workersLocked sends the values of each worker that was counted or has a process here. c.stats.mu is held.
func (c *collector) workersLocked(s sink, snapshot gateway.Snapshot, usage map[string]workerUsage) {
	counted := make(map[string]pool.WorkerSnapshot)
	for _, p := range snapshot.Pools {
		for _, w := range p.Workers {
			counted[w.Worker] = w
			labels := []string{p.Pool, w.Worker}
			s.value(workerRequests, float64(w.Requests), labels...)
			s.value(workerFailed, float64(w.Failed), labels...)
			s.value(workerCallSeconds, w.CallTime.Seconds(), labels...)
			s.value(workerGranted, float64(w.Granted), labels...)
			s.value(workerRefused, float64(w.Refused), labels...)
		}
	}
	for worker, w := range c.stats.workers {
		if pool := api.PoolOf(worker); w.replacementsKnown {
			s.byCause(workerRestarts, w.restarts, restartCauses, pool, worker)
			s.byCause(workerRotations, w.rotations, rotationCauses, pool, worker)
		}
	}
	for worker, u := range usage {
		c.workerLocked(s, api.PoolOf(worker), u, counted[worker])
	}
}

// workerLocked sends the values of a worker that has a process here. c.stats.mu is held.
func (c *collector) workerLocked(s sink, pool string, u workerUsage, counted pool.WorkerSnapshot) {
	worker, info, incarnation := u.newest.Worker(), u.newest.Info(), u.newest.Incarnation()
	w := c.stats.workers[worker]
	draining := counted.Draining && counted.Incarnation == incarnation
	succeeded := draining && w != nil && w.incarnation > incarnation // and its successor has ended
	if w == nil || w.incarnation != incarnation {
		w = &workerStat{}
	}
	state := workerStateOf(processFacts{
		ready: !info.ReadyAt.IsZero(), stopping: u.newest.Stopping(), suspended: w.suspended, degraded: w.degraded,
		draining: draining, leased: counted.Leased,
	})
	for _, one := range lifecycle.States() {
		if one.Live() {
			s.flag(workerState, one == state, pool, worker, string(one))
		}
	}
	s.flag(workerHealthy, !w.unhealthy, pool, worker)
	s.value(workerIncarnation, float64(incarnation), pool, worker)
	s.value(workerStart, float64(info.StartedAt.UnixMilli())/1000, pool, worker)
	s.value(workerInFlight, float64(counted.InFlight), pool, worker)
	if !succeeded { // else its counters would be taken for what the next process counts
		for counter, n := range u.newest.Counts() {
			s.value(workerCounted, float64(n), pool, worker, counter)
		}
		if n := u.newest.LatestSample().Network; n != nil {
			s.value(workerReceived, float64(n.ReceivedBytes), pool, worker)
			s.value(workerSent, float64(n.SentBytes), pool, worker)
		}
	}
	if u.sampled {
		s.assessment(c.config.Assessment(worker, incarnation), pool, worker)
		s.value(workerMemory, float64(u.memory), pool, worker)
		s.value(workerCPU, u.cpu/100, pool, worker)
		s.value(workerFiles, float64(u.files), pool, worker)
		s.value(workerThreads, float64(u.threads), pool, worker)
	}
}
