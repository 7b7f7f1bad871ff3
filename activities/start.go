package activities

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/process"
)

// AwaitCapacity returns the name of this host, which keeps a placement slot for the start of the worker for some
// seconds. Temporal runs it only on a host with a free placement slot; if that is kept for another worker, Temporal
// retries it.
func (h *Host) AwaitCapacity(_ context.Context, p api.Process) (api.AwaitCapacityResult, error) {
	if !h.Promise(p.Worker) {
		return api.AwaitCapacityResult{},
			temporal.NewApplicationErrorWithOptions("the free capacity of host "+h.ID+" is kept for another worker",
				string(api.CodeNoWorkers),
				temporal.ApplicationErrorOptions{NextRetryDelay: capacityRetry + rand.N(capacityRetry)})
	}
	return api.AwaitCapacityResult{Host: h.ID}, nil
}

// capacityRetry is the shortest delay before a worker is considered again for the capacity of any host.
const capacityRetry = 2 * time.Second

// Start starts an incarnation and returns when it is ready. It fails with api.CodeStartFailed if the process does not
// become ready, with api.CodeNoWorkers if the host has no resources for it or its agent stops, and with
// api.CodeSuperseded if this host has had a higher incarnation of the worker. No failure is retried by Temporal: the
// worker's recovery policy decides.
func (h *Host) Start(ctx context.Context, r api.StartRequest) (api.StartResult, error) {
	defer startHeartbeat(ctx, h.Temporal)()
	// A workflow starts an incarnation once. If this host knows the number, an earlier pool of the same name has used it.
	superseded := func(newest int64) (api.StartResult, error) {
		return api.StartResult{}, temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("host %s has run incarnation %d of %s for an earlier pool of the same name; the next incarnation is %d",
				h.ID, newest, r.Worker, newest+1),
			string(api.CodeSuperseded), nil, api.SupersededDetails{Newest: newest})
	}
	if newest := h.Processes.Newest(r.Worker); newest >= r.Incarnation {
		return superseded(newest)
	}
	if err := h.Admit(ctx, r); err != nil {
		if api.CodeOf(err) != api.CodeNoWorkers { // another host is to start it, and no program has failed
			h.Observer.StartFailed(r.Process, err)
		}
		return api.StartResult{}, fromCoded(err)
	}
	epoch := h.Epoch()
	h.announce(r, nil)
	began := time.Now()
	traced := h.TraceStart(ctx, r.Process)
	p, err := h.Processes.Start(ctx,
		process.Launch{Worker: r.Worker, Incarnation: r.Incarnation, Spec: r.Spec, Keep: r.KeepIncarnations})
	traced(err)
	if errors.Is(err, worker.ErrWorkerShutdown) { // no program has failed
		return api.StartResult{}, nonRetryable(api.CodeNoWorkers, "the agent of host "+h.ID+" stops")
	}
	if errors.Is(err, process.ErrSuperseded) { // by a start that ran at the same time
		return superseded(max(r.Incarnation, h.Processes.Newest(r.Worker)))
	}
	if err != nil {
		h.Observer.StartFailed(r.Process, err)
		if errors.Is(err, process.ErrExhausted) {
			h.Exhausted()
			return api.StartResult{}, nonRetryable(api.CodeNoWorkers, "host "+h.ID+" cannot start the process: "+err.Error())
		}
		return api.StartResult{}, fromProcess(err)
	}
	h.Started(p)
	took := time.Since(began)
	h.Observer.Started(r.Process, p.Info(), took)
	if err := h.probation(ctx, p, policy.Recovery(r.Spec.Recovery).Probation(r.Failures, r.ShortLived)); err != nil {
		h.Observer.StartFailed(r.Process, err)
		return api.StartResult{}, temporal.NewNonRetryableApplicationError(err.Error(), string(api.CodeStartFailed), nil,
			api.StartFailedDetails{Usage: *finalUsage(p)})
	}
	if h.Epoch() != epoch { // the worker would not learn of this process's end
		err := api.Errorf(api.CodeStartFailed, "host %s lost its epoch %d during the start", h.ID, epoch)
		p.Kill(err.Message)
		_, _ = p.Stop(ctx, 0) // waits
		h.Observer.StartFailed(r.Process, err)
		return api.StartResult{}, fromCoded(err)
	}
	info := p.Info()
	result := api.StartResult{
		Host: h.ID, Epoch: epoch, PID: info.PID, StartedAt: info.StartedAt, Address: info.Address,
		Endpoint: h.DataPlane.Endpoint(), TookMS: took.Milliseconds(), Limits: p.LimitMechanisms(),
	}
	measure := p.FirstSample
	if r.Rules.MaxMemoryBytes > 0 { // a part of the tree must not pass for all of it
		measure = p.FreshSample
	}
	if sample, err := measure(ctx); err == nil {
		result.Sample = toSample(sample)
		// the next process would start as large
		if r.Rules.MaxMemoryBytes > 0 && sample.MemoryBytes >= r.Rules.MaxMemoryBytes {
			r.Rules.MaxMemoryBytes = 0
		}
	}
	result.Rules = r.Rules
	h.monitor(p, r.RunID, api.WatchRequest{Process: r.Process, Health: r.Spec.Health, Probe: true, Rules: r.Rules,
		Replaced: r.Replaced}, 0)
	result.Announced = h.announce(r, &result)
	return result, nil
}

// announce reports to the pool that a process starts, or is ready, if the worker asked for it; it returns whether it
// did.
func (h *Host) announce(r api.StartRequest, ready *api.StartResult) bool {
	if r.Announce == nil {
		return false
	}
	p := api.StartedProcess{State: lifecycle.Starting, Incarnation: r.Incarnation, RunID: r.RunID, Announce: *r.Announce}
	if ready != nil {
		p.State, p.PID, p.Reason, p.Starts = lifecycle.Ready, ready.PID, ready.Reason(), p.Starts+1
	}
	h.Announce(r.Worker, p)
	return true
}

// probation fails if a process that became ready exits within d. It returns early, without an error, when ctx ends or
// the agent stops: the process exists then, and the caller that cancelled the start must stop it.
func (h *Host) probation(ctx context.Context, p *process.Process, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	began := time.Now()
	select {
	case <-p.Done():
		return &process.Error{Code: process.CodeStartFailed,
			Message: fmt.Sprintf("the process became ready and exited %s later, within its probation of %s: %s",
				time.Since(began).Round(time.Millisecond), d.Round(time.Millisecond), p.Exit().Reason)}
	case <-time.After(d):
	case <-ctx.Done():
	case <-h.Stopping:
	}
	return nil
}
