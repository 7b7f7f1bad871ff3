package tempool

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

const (
	// startPoll is the interval of polling a pool that starts a worker.
	startPoll = 200 * time.Millisecond
	// clientDemandExpiry is how long a pool counts the demand of a client, which repeats it after clientDemandRepeat.
	clientDemandExpiry = 15 * time.Second
	clientDemandRepeat = 6 * time.Second
)

// awaitStart reports demand to a pool that has no worker because none was needed, and waits, at most queue.timeout,
// until one serves. It reports whether one does; it does nothing for any other pool.
func (p *Pool) awaitStart(ctx context.Context, status api.PoolStatus) bool {
	if !status.ScaledToZero() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, status.Spec.Queue.Timeout.D())
	defer cancel()
	var reportedAt time.Time
	for {
		if time.Since(reportedAt) >= clientDemandRepeat {
			reportedAt = time.Now()
			_ = p.client.temporal.SignalWorkflow(ctx, api.PoolWorkflowID(p.name), "", api.SignalDemand, api.Demand{
				Host: api.DemandOfClients, Load: 1, Waiting: 1, ExpiryMS: clientDemandExpiry.Milliseconds(),
			}) // if it fails, it is repeated
		}
		if !sleep.For(ctx.Done(), startPoll) {
			return false
		}
		if status, err := p.Running(ctx); err == nil && !status.ScaledToZero() {
			return status.Scale != nil && !status.Stopping
		}
	}
}

// awaitFirstWorker is awaitStart for a pool whose status is not known.
func (p *Pool) awaitFirstWorker(ctx context.Context) bool {
	if p.client.fixed != nil {
		return false // its gateways report the demand
	}
	status, err := p.Running(ctx)
	return err == nil && p.awaitStart(ctx, status)
}
