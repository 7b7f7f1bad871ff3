package activities

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
)

// monitors holds the monitor of each ready process. Its zero value is ready to use.
type monitors struct {
	mu      sync.Mutex
	all     map[*process.Process]*monitor
	running sync.WaitGroup
	// orders are the orders to processes in progress.
	orders sync.WaitGroup
	// released ends with Release, which calls release.
	released context.Context
	release  context.CancelFunc
}

// monitor observes one process from the moment it is ready until it has ended.
type monitor struct {
	host  *Host
	p     *process.Process
	runID string // of the worker's workflow; see api.ProcessEvents

	health processHealth

	mu      sync.Mutex
	request api.WatchRequest
	changed chan struct{} // has a value when request has changed
	claimed bool          // the worker's workflow has set request
	due     chan struct{} // has a value when the incarnation has served as many requests as its rules allow

	kept keptNote // the gateway's part, set by Release: the gateway is closed when Note needs it

	// Used by run only.
	observed    api.WatchRequest
	probes      *time.Ticker          // stopped if observed asks for no probes
	probed      chan *api.WatchResult // of the probe that runs
	cancelProbe context.CancelFunc    // of the probe that runs; nil while none does
	reported    time.Time             // when the program last reported itself unhealthy
	checked     time.Time             // of the newest sample that was checked; zero while the rules are new
	growing     bool                  // its memory may reach its limit before the next sample
}

// monitor observes a process that is ready, and reports what it sees. baseline is the memory that its program is known
// to need, in bytes; 0 if it is not known.
func (h *Host) monitor(p *process.Process, runID string, r api.WatchRequest, baseline int64) {
	h.Observer.Watching(r)
	m := &monitor{host: h, p: p, runID: runID, request: r, changed: make(chan struct{}, 1), due: make(chan struct{}, 1),
		probed: make(chan *api.WatchResult, 1)}
	ready := p.Info().ReadyAt
	m.health.callCounts = []callCount{{at: ready}} // the first calls may come before the first sample
	m.health.loadAt = ready
	if m.health.baseline = baseline; baseline > 0 {
		m.health.served = ready
	}
	s := &h.monitors
	s.mu.Lock()
	defer s.mu.Unlock()
	s.initLocked()
	s.all[p] = m
	s.running.Go(func() {
		if !m.run(s.released.Done()) {
			return // Note needs it
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, p)
	})
}

func (s *monitors) initLocked() {
	if s.all == nil {
		s.all = map[*process.Process]*monitor{}
		s.released, s.release = context.WithCancel(context.Background())
	}
}

func (s *monitors) of(p *process.Process) *monitor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[p]
}

// set changes what is observed of a process.
func (s *monitors) set(p *process.Process, r api.WatchRequest) {
	m := s.of(p)
	if m == nil {
		return // it is ending; its exit was reported
	}
	m.mu.Lock()
	m.request, m.claimed = r, true
	m.mu.Unlock()
	sleep.Wake(m.changed)
}

// WaitMonitors returns when all monitors have ended, which they do with their processes.
func (h *Host) WaitMonitors() { h.monitors.running.Wait() }

func (m *monitor) current() api.WatchRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.request
}

func (m *monitor) notify(result api.WatchResult) {
	if result.Usage == nil {
		result.Usage = new(m.p.Served().Usage())
	}
	m.host.Notify(m.p.Worker(), m.runID, api.ProcessEvent{Incarnation: m.p.Incarnation(), WatchResult: result})
}

// run reports the exit of the process, failed probes, what the program reports about its health, the passed probe of a
// degraded worker, once why the incarnation should be replaced, and once that the agent stops. It reports whether the
// process has ended; otherwise it was released. Each process has a goroutine that waits here for all of its life, so
// this function needs little of its stack: other functions handle the events.
func (m *monitor) run(released <-chan struct{}) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m.probes = time.NewTicker(checkInterval)
	m.observe(m.current())
	defer m.stopProbe()
	looks := time.NewTicker(checkInterval)
	defer looks.Stop()
	defer m.probes.Stop()
	stopping, exceeded, ended, unhealthy := m.host.Stopping, m.p.Exceeded(), m.p.Done(), m.p.Unhealthy()
	for {
		select {
		case <-ended:
			m.notify(exited(m.p))
			return true
		case <-released:
			return false
		case <-stopping:
			stopping = nil
			m.notify(api.WatchResult{Event: api.WatchShutdown, Reason: "the agent of host " + m.host.ID + " is shutting down",
				Sample: toSample(m.p.LatestSample())})
		case <-exceeded:
			exceeded = nil
			m.host.Observer.Exceeded(m.observed.Process, m.p.Violation())
			m.check(ctx)
		case <-m.changed:
			m.observe(m.current())
		case <-m.probeDue():
			m.probe(ctx)
		case end := <-m.probed:
			m.probeEnded(end)
		case reason := <-unhealthy:
			m.reportedUnhealthy(reason)
		case <-m.due:
			m.check(ctx)
		case <-looks.C:
			if m.needsCheck() {
				m.check(ctx)
			}
		}
	}
}

// observe observes the process by a request from now on.
func (m *monitor) observe(r api.WatchRequest) {
	m.stopProbe()
	m.observed, m.checked = r, time.Time{}
	// at once: workers that serve many calls a second would all reach their limits between two looks
	m.host.DataPlane.NotifyAt(m.p.Worker(), m.p.Incarnation(), r.Rules.RequestLimit, func() { sleep.Wake(m.due) })
	interval := r.Health.Interval.D()
	if r.Failures > 0 {
		interval = min(interval, api.DegradedProbeDelay)
	}
	m.probes.Stop()
	if r.Probe {
		m.probes.Reset(interval)
	}
}

// reportedUnhealthy reports that the program reported itself unhealthy, which counts like a failed probe, unless the
// last report came just before.
func (m *monitor) reportedUnhealthy(reason string) {
	if !m.observed.Probe || time.Since(m.reported) < api.DegradedProbeDelay {
		return
	}
	m.reported = time.Now()
	err := fmt.Errorf("the program reports itself unhealthy: %s", cmp.Or(reason, "it gives no reason"))
	m.host.Observer.Probed(processOf(m.p), 0, err)
	m.healthChecked(api.WatchResult{Event: api.WatchUnhealthy, Reason: err.Error()})
}

// check reports, once, why the incarnation should be replaced.
func (m *monitor) check(ctx context.Context) {
	h, p := m.host, m.p
	m.checked = p.LatestSample().At
	cause, reason := m.replacement(ctx)
	m.growing = m.health.needsSample(m.observed.Rules)
	if cause == "" {
		return
	}
	h.Logger.Info("incarnation should be replaced", "worker", p.Worker(), "incarnation", p.Incarnation(), "cause", cause,
		"reason", reason)
	m.notify(api.WatchResult{
		Event: api.WatchReplace, Cause: cause, Reason: reason, Sample: toSample(p.LatestSample()),
		Assessment: m.assessment(),
	})
	m.observed.Rules = api.WatchRules{}
}

// CallsFail notifies a worker that calls on an incarnation fail; replace says that the process should be replaced. It
// returns at once.
func (h *Host) CallsFail(worker string, incarnation int64, reason string, replace bool) {
	p, _ := h.Processes.Get(worker, incarnation)
	m := h.monitors.of(p)
	if m == nil {
		return // it is ending; its exit was reported
	}
	result := api.WatchResult{Event: api.WatchUnhealthy, Reason: reason, Sample: toSample(p.LatestSample())}
	if replace {
		result.Cause = api.CauseUnhealthy
	}
	m.notify(result)
}

// Heartbeat returns the usage and health of the ready processes of this host.
func (h *Host) Heartbeat() api.HostHeartbeat {
	s := &h.monitors
	s.mu.Lock()
	watched := slices.Collect(maps.Values(s.all))
	s.mu.Unlock()
	var heartbeat api.HostHeartbeat
	for _, m := range watched {
		p := m.p
		limits, info := p.Limits(), p.Info()
		var key *api.KeyUse
		if use := p.Used(); use != nil && use.Key != "" {
			key = &api.KeyUse{Key: api.ShownKey(use.Key), Since: use.Since}
		}
		heartbeat.Processes = append(heartbeat.Processes, api.ProcessReport{
			Process: processOf(p),
			Usage:   p.Served().Usage(), InFlight: int(p.Served().InFlight.Load()),
			Sample: toSample(p.LatestSample()), Assessment: m.assessment(),
			Number: info.Number, Key: key, UptimeMS: time.Since(info.ReadyAt).Milliseconds(),
			Lease: h.DataPlane.Lease(p.Worker(), p.Incarnation()), MemoryLimitBytes: int64(limits.Memory),
			CPULimitCores: limits.CPU,
		})
	}
	return heartbeat
}

// Watch sets what this host observes of an incarnation from now on. It returns at once: with WatchUnknown or
// WatchExited if there is no process to observe, else with no event. It reports what it observes with Notify.
func (h *Host) Watch(ctx context.Context, r api.WatchRequest) (api.WatchResult, error) {
	return order(ctx, h, func(context.Context) api.WatchResult {
		p, ended := h.running(r.Process)
		if p == nil {
			return ended
		}
		h.Observer.Watching(r)
		problem := ""
		if r.Failures > 0 {
			problem = "its worker is degraded until it passes a health check"
		}
		h.DataPlane.Claim(r.Worker, r.Incarnation)
		h.DataPlane.SetHealth(r.Worker, r.Incarnation, problem)
		h.monitors.set(p, r)
		return api.WatchResult{}
	})
}

// running returns a process that has not ended, else nil and the observation that there is none.
func (h *Host) running(of api.Process) (*process.Process, api.WatchResult) {
	p, known := h.Processes.Get(of.Worker, of.Incarnation)
	if !known {
		return nil, api.WatchResult{Event: api.WatchUnknown, Reason: unknownProcess,
			Exit: &lifecycle.Exit{Error: unknownProcess}}
	}
	if p.HasEnded() {
		return nil, exited(p)
	}
	return p, api.WatchResult{}
}

// processOf names a process.
func processOf(p *process.Process) api.Process {
	return api.Process{Worker: p.Worker(), Incarnation: p.Incarnation()}
}

// exited is the observation of a process that has ended.
func exited(p *process.Process) api.WatchResult {
	exit := p.Exit()
	return api.WatchResult{Event: api.WatchExited, Reason: exit.Reason, Exit: &exit.Exit,
		Sample: toSample(p.LatestSample()), Usage: finalUsage(p)}
}
