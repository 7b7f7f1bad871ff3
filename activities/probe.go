package activities

import (
	"context"
	"errors"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

// Probe runs one health check and takes one full sample. A check that a call in progress prevents has passed.
func (h *Host) Probe(ctx context.Context, r api.WatchRequest) (api.WatchResult, error) {
	return order(ctx, h, func(ctx context.Context) api.WatchResult {
		p, ended := h.running(r.Process)
		if p == nil {
			return ended
		}
		result := api.WatchResult{Event: api.WatchProbePassed}
		began := time.Now()
		err := p.Probe(ctx)
		if !errors.Is(err, process.ErrBusy) {
			h.Observer.Probed(r.Process, time.Since(began), err)
			if err != nil {
				result.Event, result.Reason = api.WatchProbeFailed, err.Error()
			}
		}
		usage := p.Served().Usage()
		result.Usage = &usage
		if sample, err := p.Sample(ctx); err == nil {
			result.Sample = toSample(sample)
			if m := h.monitors.of(p); m != nil { // it has not ended
				m.sampled(sample, servedBy(p), r.Health)
				result.Assessment = m.assessment()
			}
		}
		return result
	})
}

// probeEnd is the end of a probe, which says nothing about the process if it does not count.
type probeEnd struct {
	counts bool
	err    error
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
	of := m.observed.Process
	go func() {
		began := time.Now()
		err := m.p.Probe(ctx)
		took := time.Since(began)
		// A call in progress prevented the probe, or the process has ended, which is more specific than the failed probe.
		counts := ctx.Err() == nil && !errors.Is(err, process.ErrBusy) && !m.p.HasEnded()
		if counts {
			m.host.Observer.Probed(of, took, err)
		}
		m.probed <- probeEnd{counts, err}
	}()
}

// probeEnded takes the end of a probe. It closes the process to calls of its pool if the probe has failed, which
// degrades its worker, and opens it if it has passed. It reports a failed probe, or the passed one of a degraded
// worker.
func (m *monitor) probeEnded(e probeEnd) {
	m.cancelProbe()
	m.cancelProbe = nil
	if !e.counts {
		return
	}
	result := api.WatchResult{Event: api.WatchProbePassed, Sample: toSample(m.p.LatestSample())}
	if e.err != nil {
		result.Event, result.Reason = api.WatchProbeFailed, e.err.Error()
	}
	m.host.DataPlane.SetHealth(m.p.Worker(), m.p.Incarnation(), result.Reason)
	if e.err != nil || m.observed.Failures > 0 {
		m.notify(result)
		m.forgetFailures()
	}
}

// stopProbe ends the probe that runs.
func (m *monitor) stopProbe() {
	if m.cancelProbe != nil {
		m.cancelProbe()
		<-m.probed
		m.cancelProbe = nil
	}
}
