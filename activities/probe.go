package activities

import (
	"context"
	"errors"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

// Probe runs one health check and takes one full sample.
func (h *Host) Probe(ctx context.Context, r api.WatchRequest) (api.ProbeResult, error) {
	return order(ctx, h, func(ctx context.Context) api.ProbeResult {
		p, known := h.Processes.Get(r.Worker, r.Incarnation)
		if !known {
			return api.ProbeResult{ProcessEnded: true, Reason: unknownProcess}
		}
		if p.HasEnded() {
			exit := p.Exit()
			return api.ProbeResult{ProcessEnded: true, Exit: &exit.Exit, Reason: exit.Reason, Usage: h.finalUsage(p)}
		}
		result := api.ProbeResult{Healthy: true}
		began := time.Now()
		err := p.Probe(ctx)
		if !errors.Is(err, process.ErrBusy) { // a call in progress prevented the probe, which says nothing
			h.Observer.Probed(r.Process, time.Since(began), err)
			if err != nil {
				result.Healthy, result.Reason = false, err.Error()
			}
		}
		usage, _ := h.DataPlane.Usage(r.Worker, r.Incarnation)
		result.Usage = &usage
		if sample, err := p.Sample(ctx); err == nil {
			result.Sample = toSample(sample)
			h.sampled(p, sample, h.served(p), r.Health)
			result.Assessment = h.health.of(p).assessment(p.SharedSpec())
		}
		return result
	})
}

// prober probes a process every health.interval. A probe may take as long as health.timeout, so it has a goroutine of
// its own; between two probes there is none. Its methods are called by one goroutine.
type prober struct {
	process  *process.Process
	observe  func(time.Duration, error) // receives the duration and the result of every probe
	degraded bool
	ticker   *time.Ticker // nil if the request asks for no probes
	// ended delivers the end of the probe that runs; see take.
	ended  chan probeEnd
	cancel context.CancelFunc // of the probe that runs; nil while none does
}

// probeEnd is the end of a probe, which says nothing about the process if it does not count.
type probeEnd struct {
	counts bool
	err    error
}

func newProber(p *process.Process, r api.WatchRequest, observe func(time.Duration, error)) *prober {
	b := &prober{process: p, observe: observe, degraded: r.Failures > 0, ended: make(chan probeEnd, 1)}
	if r.Probe {
		interval := r.Health.Interval.D()
		if b.degraded {
			interval = min(interval, api.DegradedProbeDelay)
		}
		b.ticker = time.NewTicker(interval)
	}
	return b
}

// due delivers when a probe is due. It is nil while one runs.
func (b *prober) due() <-chan time.Time {
	if b.ticker == nil || b.cancel != nil {
		return nil
	}
	return b.ticker.C
}

// probe starts a probe.
func (b *prober) probe(ctx context.Context) {
	ctx, b.cancel = context.WithCancel(ctx)
	go func() {
		began := time.Now()
		err := b.process.Probe(ctx)
		took := time.Since(began)
		// A call in progress prevented the probe, or the process has ended, which is more specific than the failed probe.
		counts := ctx.Err() == nil && !errors.Is(err, process.ErrBusy) && !b.process.HasEnded()
		if counts {
			b.observe(took, err)
		}
		b.ended <- probeEnd{counts, err}
	}()
}

// take takes the end of a probe, and reports whether the worker's workflow wants to know: the probe failed, or a
// degraded worker passed it.
func (b *prober) take(e probeEnd) bool {
	b.cancel()
	b.cancel = nil
	return e.counts && (e.err != nil || b.degraded)
}

// stop ends the probe that runs. The prober must not be used any more.
func (b *prober) stop() {
	if b.ticker != nil {
		b.ticker.Stop()
	}
	if b.cancel != nil {
		b.cancel()
		<-b.ended
	}
}
