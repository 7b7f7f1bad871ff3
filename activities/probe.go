package activities

import (
	"context"
	"errors"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

// prober probes in the rhythm of the spec, off the loop that heartbeats: a probe may take as long as health.timeout.
type prober struct {
	failed chan error    // one failure at most; the prober ends with it
	passed chan struct{} // for a degraded worker, whose first probe ends the prober either way
	report func(error)   // how a probe went
	cancel context.CancelFunc
	done   chan struct{}
}

func newProber(ctx context.Context, p *process.Process, r api.WatchRequest, tell func(error)) *prober {
	ctx, cancel := context.WithCancel(ctx)
	b := &prober{failed: make(chan error, 1), passed: make(chan struct{}, 1), report: tell, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		if r.Probe {
			b.run(ctx, p, r)
		}
	}()
	return b
}

func (b *prober) run(ctx context.Context, p *process.Process, r api.WatchRequest) {
	every := r.Health.Interval.D()
	if r.Failures > 0 {
		every = min(every, api.DegradedProbeDelay)
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.Done():
			return
		case <-ticker.C:
		}
		err := p.Probe(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, process.ErrBusy):
			continue
		case hasEnded(p): // its exit says more than the probe
			return
		}
		b.report(err)
		switch {
		case err != nil:
			b.failed <- err
			return
		case r.Failures > 0:
			b.passed <- struct{}{}
			return
		}
	}
}

func (b *prober) stop() {
	b.cancel()
	<-b.done
}

// Probe makes one health check and takes one full sample.
func (h *Host) Probe(ctx context.Context, r api.WatchRequest) (api.ProbeResult, error) {
	p, known := h.Processes.Get(r.Worker, r.Incarnation)
	if !known {
		return api.ProbeResult{Gone: true, Reason: unknownProcess}, nil
	}
	select {
	case <-p.Done():
		return api.ProbeResult{Gone: true, Reason: p.Exit().Reason, Usage: h.finalUsage(p)}, nil
	default:
	}
	result := api.ProbeResult{Healthy: true}
	err := p.Probe(ctx)
	if err != nil && !errors.Is(err, process.ErrBusy) {
		result.Healthy, result.Reason = false, err.Error()
	}
	h.probed(r.Process, err)
	if sample, err := p.Sample(ctx); err == nil {
		result.Sample = toSample(sample)
		v := h.health.of(p)
		v.add(sample, h.requestCount(p), r.Health)
		result.Assessment = v.assessment()
	}
	return result, nil
}

// probed tells of a health check that was made; one that a call kept from being made says nothing.
func (h *Host) probed(p api.Process, err error) {
	if !errors.Is(err, process.ErrBusy) {
		h.observer().Probed(p, err)
	}
}
