package activities

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

// endNotice is how long the end of a process may take until its health is that of one that does not answer: an engine
// that hangs holds up the end of its container.
const endNotice = 2 * time.Second

// Probe runs one health check and takes one full sample. A check that a call in progress prevents has passed; one that
// the end of the process prevents has the event of that end.
func (h *Host) Probe(ctx context.Context, r api.WatchRequest) (api.WatchResult, error) {
	result, err := order(ctx, h, func(ctx context.Context) api.WatchResult {
		p, ended := h.running(r.Process)
		if p == nil {
			return ended
		}
		result := cmp.Or(h.check(ctx, p), &api.WatchResult{Event: api.WatchProbePassed})
		if p.HasEnded() {
			return exited(p)
		}
		result.Usage = new(p.Served().Usage())
		if sample, err := p.Sample(ctx); err == nil {
			result.Sample = toSample(sample)
			if m := h.monitors.of(p); m != nil { // it has not ended
				m.sampled(sample, servedBy(p), r.Health)
				result.Assessment = m.assessment()
			}
		}
		return *result
	})
	return result, cmp.Or(err, ctx.Err()) // a check that was cut short proves nothing
}

// check runs one health check. nil says that a call in progress prevented it. A result without an event is that of a
// process that has ended, which its exit explains better.
func (h *Host) check(ctx context.Context, p *process.Process) *api.WatchResult {
	began := time.Now()
	err := p.Probe(ctx)
	unavailable := errors.Is(err, process.ErrUnavailable)
	if unavailable {
		ended, cancel := context.WithTimeout(ctx, endNotice)
		select {
		case <-p.Done():
		case <-ended.Done():
		}
		cancel()
	}
	switch {
	case ctx.Err() != nil || errors.Is(err, process.ErrBusy):
		return nil
	case unavailable && p.HasEnded():
		return &api.WatchResult{}
	}
	h.Observer.Probed(processOf(p), time.Since(began), err)
	if err != nil {
		return &api.WatchResult{Event: api.WatchProbeFailed, Reason: err.Error()}
	}
	return &api.WatchResult{Event: api.WatchProbePassed}
}

// probeDue delivers when a probe is due. It is nil while one runs.
func (m *monitor) probeDue() <-chan time.Time {
	if m.cancelProbe != nil {
		return nil
	}
	return m.probes.C
}

// probe starts a probe, which may take as long as health.timeout, so it has a goroutine of its own; between two probes
// there is none.
func (m *monitor) probe(ctx context.Context) {
	ctx, m.cancelProbe = context.WithCancel(ctx)
	go func() { m.probed <- m.host.check(ctx, m.p) }()
}

// probeEnded takes the end of a probe.
func (m *monitor) probeEnded(result *api.WatchResult) {
	m.cancelProbe()
	m.cancelProbe = nil
	if result != nil && result.Event != "" {
		m.healthChecked(*result)
	}
}

// healthChecked closes the process to calls of its pool if it is not healthy, which degrades its worker, and opens it
// if it is. It reports an unhealthy process, or the healthy one of a degraded worker; the worker's workflow counts the
// failure, so the host then probes as if no probe had failed.
func (m *monitor) healthChecked(result api.WatchResult) {
	m.host.DataPlane.SetHealth(m.p.Worker(), m.p.Incarnation(), result.Reason)
	if result.Event == api.WatchProbePassed && m.observed.Failures == 0 {
		return
	}
	result.Sample = toSample(m.p.LatestSample())
	m.notify(result)
	r := m.observed
	r.Failures = 0
	m.observe(r)
}

// stopProbe ends the probe that runs.
func (m *monitor) stopProbe() {
	if m.cancelProbe != nil {
		m.cancelProbe()
		<-m.probed
		m.cancelProbe = nil
	}
}
