package activities

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

// monitors holds the monitor of each ready process. Its zero value is ready to use.
type monitors struct {
	mu      sync.Mutex
	all     map[*process.Process]*monitor
	running sync.WaitGroup
	// orders are those to processes that are under way.
	orders sync.WaitGroup
	// released is closed by Release.
	released chan struct{}
}

// monitor observes one process from the moment it is ready until it has ended.
type monitor struct {
	host  *Host
	p     *process.Process
	runID string // of the worker's workflow; see api.ProcessEvents

	mu      sync.Mutex
	request api.WatchRequest
	changed chan struct{} // has a value when request has changed
	claimed bool          // the worker's workflow has set request
}

// monitor observes a process that is ready, and tells what it sees.
func (h *Host) monitor(p *process.Process, runID string, r api.WatchRequest) {
	h.Observer.Watching(r)
	m := &monitor{host: h, p: p, runID: runID, request: r, changed: make(chan struct{}, 1)}
	s := &h.monitors
	s.mu.Lock()
	defer s.mu.Unlock()
	s.initLocked()
	s.all[p] = m
	s.running.Go(func() {
		if !m.run(s.released) {
			return // Note needs it
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, p)
	})
}

func (s *monitors) initLocked() {
	if s.all == nil {
		s.all, s.released = map[*process.Process]*monitor{}, make(chan struct{})
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
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// WaitMonitors returns when all monitors have ended, which they do with their processes.
func (h *Host) WaitMonitors() { h.monitors.running.Wait() }

func (m *monitor) current() api.WatchRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.request
}

func (m *monitor) notify(result api.WatchResult) {
	m.host.Notify(m.p.Worker(), m.runID, api.ProcessEvent{Incarnation: m.p.Incarnation(), WatchResult: result})
}

// run tells the exit of the process, failed probes, what the program reports of its health, the passed probe of a degraded worker, once why the
// incarnation should be replaced, and once that the agent stops. It reports whether the process has ended; otherwise it was released.
func (m *monitor) run(released <-chan struct{}) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h, p := m.host, m.p
	checks := time.NewTicker(checkInterval)
	defer checks.Stop()
	r := m.current()
	prober := m.startProber(ctx, r)
	defer func() { prober.stop() }()
	stopping, exceeded := h.Stopping, p.Exceeded()
	var reported time.Time // when the program last reported that it is not well
	for {
		select {
		case <-p.Done():
			m.notify(h.exited(p))
			return true
		case <-released:
			return false
		case <-stopping:
			stopping = nil
			m.notify(api.WatchResult{Event: api.WatchShutdown, Reason: "the agent of host " + h.ID + " is shutting down", Sample: toSample(p.LatestSample())})
		case <-exceeded:
			exceeded = nil
			h.Observer.Exceeded(r.Process, p.Violation())
		case <-m.changed:
			prober.stop()
			r = m.current()
			prober = m.startProber(ctx, r)
		case err := <-prober.result:
			result := api.WatchResult{Event: api.WatchProbePassed, Sample: toSample(p.LatestSample())}
			if err != nil {
				result.Event, result.Reason = api.WatchProbeFailed, err.Error()
			}
			m.notify(result)
			prober.stop()
			r.Failures = 0
			prober = m.startProber(ctx, r)
		case reason := <-p.Unhealthy():
			if !r.Probe || time.Since(reported) < api.DegradedProbeDelay {
				continue
			}
			reported = time.Now()
			m.unhealthy(reason)
			prober.stop()
			r.Failures = 0
			prober = m.startProber(ctx, r)
		case <-checks.C:
			if cause, reason := h.check(ctx, p, r); cause != "" {
				h.Logger.Info("incarnation should be replaced", "worker", p.Worker(), "incarnation", p.Incarnation(), "cause", cause, "reason", reason)
				m.notify(api.WatchResult{
					Event: api.WatchReplace, Cause: cause, Reason: reason, Sample: toSample(p.LatestSample()), Assessment: h.health.of(p).assessment(p.Spec()),
				})
				r.Rules = api.WatchRules{}
			}
		}
	}
}

// unhealthy tells that the program reports that it is not well, which counts like a failed probe.
func (m *monitor) unhealthy(reason string) {
	h, p := m.host, m.p
	err := fmt.Errorf("the program reports that it is not well: %s", cmp.Or(reason, "it gives no reason"))
	h.Observer.Probed(api.Process{Worker: p.Worker(), Incarnation: p.Incarnation()}, 0, err)
	h.DataPlane.Unhealthy(p.Worker(), p.Incarnation(), err.Error())
	m.notify(api.WatchResult{Event: api.WatchUnhealthy, Reason: err.Error(), Sample: toSample(p.LatestSample())})
}

// CallsFail tells a worker that calls on an incarnation fail; replace says that the process should be replaced. It returns at once.
func (h *Host) CallsFail(worker string, incarnation int64, reason string, replace bool) {
	p, known := h.Processes.Get(worker, incarnation)
	if !known {
		return
	}
	h.monitors.mu.Lock()
	m := h.monitors.all[p]
	h.monitors.mu.Unlock()
	if m == nil {
		return // it is ending; its exit was reported
	}
	result := api.WatchResult{Event: api.WatchUnhealthy, Reason: reason, Sample: toSample(p.LatestSample())}
	if replace {
		result.Cause = api.CauseUnhealthy
	}
	m.notify(result)
}

func (m *monitor) startProber(ctx context.Context, r api.WatchRequest) *prober {
	return startProber(ctx, m.p, r, func(took time.Duration, err error) { m.host.Observer.Probed(r.Process, took, err) })
}

// Vitals returns how the ready processes of this host fare.
func (h *Host) Vitals() api.HostVitals {
	s := &h.monitors
	s.mu.Lock()
	watched := make([]*process.Process, 0, len(s.all))
	for p := range s.all {
		watched = append(watched, p)
	}
	s.mu.Unlock()
	var vitals api.HostVitals
	for _, p := range watched {
		usage, inFlight := h.DataPlane.Usage(p.Worker(), p.Incarnation())
		limits := p.Limits()
		vitals.Processes = append(vitals.Processes, api.ProcessVitals{
			Process: api.Process{Worker: p.Worker(), Incarnation: p.Incarnation()}, Usage: usage, InFlight: inFlight,
			Sample: toSample(p.LatestSample()), Assessment: h.health.of(p).assessment(p.Spec()), UptimeMS: time.Since(p.Info().ReadyAt).Milliseconds(),
			Lease: h.DataPlane.Lease(p.Worker(), p.Incarnation()), MemoryLimitBytes: int64(limits.Memory), CPULimitCores: limits.CPU,
		})
	}
	return vitals
}
