// Package activities is Temporal's edge to a host: each activity reads its message, has the process package or the data plane
// do the work, and turns what comes of it into a message or a typed failure. Errors get their Temporal type here.
package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy/fromspec"
	"github.com/tempool/tempool/process"
)

// heartbeatEvery is the rhythm of heartbeats; the workflow takes three missed ones for silence.
const heartbeatEvery = 4 * time.Second

// DataPlane is what the activities need of the gateway that carries the calls of this host.
type DataPlane interface {
	// Endpoint is the base URL for calls under a lease.
	Endpoint() string
	// Drain lets no new call begin and waits until none is in flight or ctx ends.
	Drain(ctx context.Context, worker string, incarnation int64) api.DrainResult
	// Recall gives a lease back that the gateway itself holds, if no call is in flight under it.
	Recall(ctx context.Context, worker string, incarnation int64, leaseID string) api.RecallResult
	// Reset ends an expired lease with the calls under it, which it counts, and has the worker forget what they left behind.
	Reset(ctx context.Context, worker string, incarnation int64, leaseID string) (api.Usage, error)
	// Usage counts the calls of an incarnation so far, and those in flight.
	Usage(worker string, incarnation int64) (api.Usage, int)
	// Final is Usage of an incarnation whose process has ended; it waits, until ctx ends, for its last calls to be counted.
	Final(ctx context.Context, worker string, incarnation int64) api.Usage
}

// Host holds the activities of one host.
type Host struct {
	ID        string
	Processes *process.Supervisor
	Plane     DataPlane
	// Admit refuses a start that this host must not make, with a coded error; nil admits all.
	Admit func(ctx context.Context, r api.StartRequest) error
	// Started is told of every process that became ready, before the slot of its start is given back.
	Started func(*process.Process)
	// Observer is told what is seen of workers; nil is nobody.
	Observer Observer
	// Stopping is closed when the agent begins to shut down.
	Stopping <-chan struct{}
	Logger   *slog.Logger

	// MemoryTotal is how much memory the host has, or its container, in bytes.
	MemoryTotal func() (int64, error)

	vitals register
}

// AwaitCapacity names this host. That it runs at all says that the host has room.
func (h *Host) AwaitCapacity(context.Context, api.Process) (api.AwaitCapacityResult, error) {
	return api.AwaitCapacityResult{Host: h.ID}, nil
}

// start makes one try.
func (h *Host) start(ctx context.Context, r api.StartRequest) (api.StartResult, error) {
	// A workflow starts an incarnation once. If this host knows the number, an earlier pool of the same name has used it.
	if newest := h.Processes.Newest(r.Worker); newest >= r.Incarnation {
		return api.StartResult{}, temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("host %s has had incarnation %d of %s from an earlier pool of that name; counting goes on from there", h.ID, newest, r.Worker),
			string(api.CodeSuperseded), nil, api.SupersededDetails{Newest: newest})
	}
	if h.Admit != nil {
		if err := h.Admit(ctx, r); err != nil {
			h.observer().StartFailed(r.Process)
			return api.StartResult{}, refusal(err)
		}
	}
	began := time.Now()
	p, err := h.Processes.Start(ctx, process.Launch{Worker: r.Worker, Incarnation: r.Incarnation, Spec: r.Spec, Keep: r.KeepIncarnations})
	if err != nil {
		h.observer().StartFailed(r.Process)
		return api.StartResult{}, failure(err)
	}
	h.Started(p)
	h.observer().Started(r.Process, time.Since(began))
	took := time.Since(began)
	if err := h.probation(ctx, p, fromspec.Recovery(r.Spec).Probation(r.Failures, r.ShortLived)); err != nil {
		h.observer().StartFailed(r.Process)
		return api.StartResult{}, failure(err)
	}
	info := p.Info()
	result := api.StartResult{
		Incarnation: r.Incarnation, Host: h.ID, PID: info.PID, StartedAt: info.StartedAt, Address: info.Address, Endpoint: h.Plane.Endpoint(),
		TookMS: took.Milliseconds(), Limits: means(p.LimitMeans()),
	}
	if sample, err := p.Sample(ctx); err == nil {
		result.Sample = convert(sample)
	}
	return result, nil
}

// means is the words of process in those of messages; nil for none.
func means(by map[string]process.Means) map[string]string {
	if len(by) == 0 {
		return nil
	}
	words := make(map[string]string, len(by))
	for limit, m := range by {
		words[limit] = string(m)
	}
	return words
}

// Stop ends a process and its tree. One that this host does not know, or that has ended, is no error.
func (h *Host) Stop(ctx context.Context, r api.StopRequest) (api.StopResult, error) {
	p, known := h.Processes.Get(r.Worker, r.Incarnation)
	if !known {
		const reason = "the host did not know the process any more: its agent was restarted, and its tree was taken down then"
		return api.StopResult{Exit: lifecycle.Exit{Interrupted: true}, Reason: reason}, nil
	}
	h.observer().Stopping(r.Process)
	exit, err := p.Stop(ctx, r.Grace.D())
	if err != nil {
		return api.StopResult{}, failure(err)
	}
	return api.StopResult{Exit: facts(exit), Reason: exit.Reason, Usage: h.final(p)}, nil
}

// Probe makes one health check and takes one full sample.
func (h *Host) Probe(ctx context.Context, r api.WatchRequest) (api.ProbeResult, error) {
	p, known := h.Processes.Get(r.Worker, r.Incarnation)
	if !known {
		return api.ProbeResult{Gone: true, Reason: unknownReason}, nil
	}
	select {
	case <-p.Done():
		return api.ProbeResult{Gone: true, Reason: p.Exit().Reason, Usage: h.final(p)}, nil
	default:
	}
	result := api.ProbeResult{Healthy: true}
	err := p.Probe(ctx)
	if err != nil && !errors.Is(err, process.ErrBusy) {
		result.Healthy, result.Reason = false, err.Error()
	}
	h.probed(r.Process, err)
	if sample, err := p.Sample(ctx); err == nil {
		result.Sample = convert(sample)
		v := h.vitals.of(p)
		v.take(sample, h.requests(p), r.Health)
		result.Assessment = v.assessment()
	}
	return result, nil
}

// Drain waits until no call is in flight on a process, at most the time it is given.
func (h *Host) Drain(ctx context.Context, r api.DrainRequest) (api.DrainResult, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout.D())
	defer cancel()
	return h.Plane.Drain(ctx, r.Worker, r.Incarnation), nil
}

// Recall asks the gateway to give back a lease that it holds and does not use.
func (h *Host) Recall(ctx context.Context, r api.RecallRequest) (api.RecallResult, error) {
	return h.Plane.Recall(ctx, r.Worker, r.Incarnation, r.LeaseID), nil
}

// Reset has a worker forget what the holder of an expired lease left behind. That it does not is no error, but a problem.
func (h *Host) Reset(ctx context.Context, r api.ResetRequest) (api.ResetResult, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout.D())
	defer cancel()
	h.observer().Decided(r.Worker, ResetWorker)
	h.Logger.Info("a worker is reset, since a lease has expired", "worker", r.Worker, "incarnation", r.Incarnation, "lease", r.LeaseID)
	usage, err := h.Plane.Reset(ctx, r.Worker, r.Incarnation, r.LeaseID)
	result := api.ResetResult{Usage: usage}
	if err != nil {
		result.Problem = err.Error()
		h.Logger.Warn("a worker was not reset after a lease had expired", "worker", r.Worker, "incarnation", r.Incarnation, "lease", r.LeaseID, "error", err)
	}
	return result, nil
}

const unknownReason = "the host does not know the process: its agent was restarted, and its tree was taken down then"

// refusal gives a coded error its Temporal type, with the same sentence.
func refusal(err error) error {
	sentence := err.Error()
	var coded *api.Error
	if errors.As(err, &coded) {
		sentence = coded.Message
	}
	return temporal.NewNonRetryableApplicationError(sentence, string(api.CodeOf(err)), nil)
}

// failure gives an error of this host its Temporal type. None is retried by Temporal: the worker decides what follows.
func failure(err error) error {
	code := string(api.CodeUnavailable)
	var coded *process.Error
	if errors.As(err, &coded) {
		code = string(coded.Code)
	}
	if errors.Is(err, context.Canceled) {
		return temporal.NewCanceledError(err.Error())
	}
	return temporal.NewNonRetryableApplicationError(err.Error(), code, nil)
}

// facts are what the state machine needs to know of an exit.
func facts(e process.Exit) lifecycle.Exit {
	return lifecycle.Exit{Killed: e.Killed, Interrupted: e.Interrupted, Code: e.Code, Signal: e.Signal, Error: e.Error}
}

func convert(s process.Sample) *api.Sample {
	if s.At.IsZero() {
		return nil
	}
	return &api.Sample{
		At: s.At, RSSBytes: s.RSSBytes, PSSBytes: s.PSSBytes, CPUPercent: s.CPUPercent, OpenFiles: s.OpenFiles,
		Threads: s.Threads, Children: s.Children, ReadBytes: s.ReadBytes, WriteBytes: s.WriteBytes,
	}
}
