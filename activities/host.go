// Package activities is Temporal's edge to a host: each activity reads its message, has the process package or the data plane
// do the work, and turns what comes of it into a message or a typed failure. Errors get their Temporal type here.
package activities

import (
	"context"
	"log/slog"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

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
	DataPlane DataPlane
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

	health healthRegistry
}

// finalUsageTimeout bounds the wait for the last calls of a process that has ended to be counted: they fail at once.
const finalUsageTimeout = 500 * time.Millisecond

// finalUsage counts the calls of a process that has ended.
func (h *Host) finalUsage(p *process.Process) *api.Usage {
	ctx, cancel := context.WithTimeout(context.Background(), finalUsageTimeout)
	defer cancel()
	usage := h.DataPlane.Final(ctx, p.Worker(), p.Incarnation())
	return &usage
}

// requestCount counts the calls of an incarnation so far.
func (h *Host) requestCount(p *process.Process) int64 {
	usage, _ := h.DataPlane.Usage(p.Worker(), p.Incarnation())
	return usage.Requests
}

func hasEnded(p *process.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}
