// Package activities implements the Temporal activities of a host. Each activity reads its request, calls the process
// package or the data plane, and returns a result or an ApplicationError whose type is an api.Code.
package activities

import (
	"context"
	"log/slog"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/limits"
)

// DataPlane is the part of the gateway that the activities use.
type DataPlane interface {
	// Endpoint returns the base URL for calls under a lease.
	Endpoint() string
	// Resume continues with a process that an earlier agent has served; see dispatch.Dispatcher.
	Resume(p *process.Process, suspended *api.Suspension, lease *api.Lease)
	// Drain stops new calls to an incarnation and waits until none is in flight or ctx ends.
	Drain(ctx context.Context, worker string, incarnation int64) api.DrainResult
	// Claim records that the workflow of a process that was taken over has claimed it.
	Claim(worker string, incarnation int64)
	// SetHealth keeps calls of the pool from an incarnation for a problem, until there is none, "".
	SetHealth(worker string, incarnation int64, problem string)
	// Reset ends an expired lease and its calls, resets the worker, and returns the usage of the lease.
	Reset(ctx context.Context, worker string, incarnation int64, leaseID string) (api.Usage, error)
	// Suspend takes an incarnation out of service until EndSuspension; see api.SuspendRequest.
	Suspend(ctx context.Context, r api.SuspendRequest) api.SuspendResult
	EndSuspension(ctx context.Context, r api.ResumeRequest) api.ResumeResult
	// Suspension returns the newest suspension of an incarnation, nil if there was none.
	Suspension(worker string, incarnation int64) *api.Suspension
	// NotifyAt calls notify, once, when an incarnation has served so many calls; 0 is never.
	NotifyAt(worker string, incarnation, calls int64, notify func())
	// Lease returns the client's lease on an incarnation as far as the gateway knows; nil if it knows none.
	Lease(worker string, incarnation int64) *api.Lease
}

// Host implements the activities that start, observe and stop the processes of one host.
type Host struct {
	ID        string
	Processes *process.Supervisor
	DataPlane DataPlane
	Temporal  HeartbeatClient
	// Admit returns a coded error for a start that this host must reject.
	Admit func(ctx context.Context, r api.StartRequest) error
	// Promise keeps a placement slot for the start of a worker, and reports whether there is one.
	Promise func(worker string) bool
	// Exhausted is called when this host had no resources for a process, which another host may have.
	Exhausted func()
	// Started receives every process that became ready, before Start releases its placement slot.
	Started  func(*process.Process)
	Observer Observer
	// Epoch returns the epoch under which this agent holds its host id.
	Epoch func() int64
	// Notify delivers an observation to the worker's workflow. It returns at once, and repeats the delivery until Temporal
	// has accepted it.
	Notify func(worker, runID string, e api.ProcessEvent)
	// Announce reports a process that starts or has become ready to its pool. It returns at once.
	Announce func(worker string, p api.StartedProcess)
	// Stopping is closed when the agent begins to shut down.
	Stopping <-chan struct{}
	// TraceStart traces the start of a process, which ended ends with its result.
	TraceStart func(ctx context.Context, p api.Process) (ended func(error))
	Logger     *slog.Logger

	// MemoryTotal returns the memory of the host, or of its container, in bytes.
	MemoryTotal func() (int64, error)

	recent   recentSamples
	monitors monitors
}

// finalUsageTimeout bounds how long finalUsage waits for the last calls of an ended process; those calls fail at once.
const finalUsageTimeout = 500 * time.Millisecond

// finalUsage returns the usage of a process that has ended.
func finalUsage(p *process.Process) *api.Usage {
	ctx, cancel := context.WithTimeout(context.Background(), finalUsageTimeout)
	defer cancel()
	for p.Served().InFlight.Load() > 0 && sleep.For(ctx.Done(), time.Millisecond) {
	}
	return new(p.Served().Usage())
}

// toSample returns nil for the zero Sample.
func toSample(s api.Sample) *api.Sample {
	if s.At.IsZero() {
		return nil
	}
	return &s
}

// Observer receives what the activities see of the workers of a host, for metrics. Its methods return at once and are
// safe for concurrent use.
type Observer interface {
	// Started reports a process that became ready, and how long its start took.
	Started(p api.Process, info process.Info, took time.Duration)
	// StartFailed reports a start that failed, and why.
	StartFailed(p api.Process, err error)
	// Watching reports the request of a Watch, which holds the workflow's view of the process.
	Watching(r api.WatchRequest)
	// Probed reports the result of a health check, and how long it took; nil means healthy. A report of the program itself
	// took 0.
	Probed(p api.Process, took time.Duration, err error)
	// Sampled reports a new sample of a process, and how many requests the process has served.
	Sampled(p api.Process, s *api.Sample, requests int64)
	// Exceeded reports that a process exceeded a limit for which it should be replaced.
	Exceeded(p api.Process, v limits.Violation)
	// Decided reports a decision that this host made about a worker without its workflow.
	Decided(worker string, d Decision)
}

// Decision is a decision that a host makes without a workflow. It is the value of a metric's label.
type Decision string

// The decisions.
const (
	ResetWorker    Decision = "reset"           // a lease expired; the worker discards what its holder left
	ApplyShare     Decision = "apply_share"     // the worker's share of the host's budget became its limits
	CollectGarbage Decision = "collect_garbage" // memory pressure is medium or higher
	LowerLimit     Decision = "lower_limit"     // memory pressure is high or critical
	RestoreLimit   Decision = "restore_limit"   // memory pressure is below high again
)

// Decisions returns all decisions.
func Decisions() []Decision {
	return []Decision{ResetWorker, ApplyShare, CollectGarbage, LowerLimit, RestoreLimit}
}
