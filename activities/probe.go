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
	return order(ctx, h, func(ctx context.Context) (api.ProbeResult, error) { return h.probe(ctx, r), nil })
}

func (h *Host) probe(ctx context.Context, r api.WatchRequest) api.ProbeResult {
	p, known := h.Processes.Get(r.Worker, r.Incarnation)
	if !known {
		return api.ProbeResult{ProcessEnded: true, Reason: unknownProcess}
	}
	if hasEnded(p) {
		exit := toExit(p.Exit())
		return api.ProbeResult{ProcessEnded: true, Exit: &exit, Reason: p.Exit().Reason, Usage: h.finalUsage(p)}
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
	if sample, err := p.Sample(ctx); err == nil {
		result.Sample = toSample(sample)
		h.sampled(p, sample, h.served(p), r.Health)
		result.Assessment = h.health.of(p).assessment(p.Spec())
	}
	return result
}

// prober probes a process every health.interval, in a goroutine of its own because a probe may take as long as health.timeout.
type prober struct {
	// result delivers at most one value, after which the prober ends: the error of a failed probe, or nil when a degraded worker
	// passed one.
	result chan error
	cancel context.CancelFunc
	done   chan struct{}
}

// startProber starts a prober if the request asks for one; observe receives the duration and the result of every probe.
func startProber(ctx context.Context, p *process.Process, r api.WatchRequest, observe func(time.Duration, error)) *prober {
	ctx, cancel := context.WithCancel(ctx)
	b := &prober{result: make(chan error, 1), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		if r.Probe {
			b.run(ctx, p, r, observe)
		}
	}()
	return b
}

func (b *prober) run(ctx context.Context, p *process.Process, r api.WatchRequest, observe func(time.Duration, error)) {
	degraded := r.Failures > 0
	interval := r.Health.Interval.D()
	if degraded {
		interval = min(interval, api.DegradedProbeDelay)
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.Done():
			return
		case <-ticker.C:
		}
		began := time.Now()
		err := p.Probe(ctx)
		took := time.Since(began)
		if ctx.Err() != nil || errors.Is(err, process.ErrBusy) {
			continue
		}
		if hasEnded(p) { // the exit is more specific than the failed probe
			return
		}
		observe(took, err)
		if err != nil || degraded {
			b.result <- err
			return
		}
	}
}

func (b *prober) stop() {
	b.cancel()
	<-b.done
}
