package activities

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

// Checkout leases a worker of this host to the workflow of the activity, its holder. Another attempt gets the same
// lease from the same worker. Failures are those of Execute.
func (p *Pool) Checkout(ctx context.Context) (*api.Lease, error) {
	info := activity.GetInfo(ctx)
	holder := info.WorkflowExecution.ID
	lease, err := p.Lease(ctx, api.CheckoutRequest{
		Holder:    strings.ToValidUTF8(holder[:min(len(holder), api.MaxHolderBytes)], ""),
		RequestID: info.WorkflowExecution.RunID + "/" + info.ActivityID})
	if err != nil {
		return nil, executeFailure(err, api.ExecuteRequest{})
	}
	lease.Token = "" // the activities need none, and it would stay in the history
	return lease, nil
}

// Leases implements the activities that keep and return a workflow's lease on a worker of this host.
type Leases struct {
	Renew   func(ctx context.Context, id string) error
	Return  func(ctx context.Context, r api.CheckinRequest) error
	InUse   func(api.Lease) bool // as far as this host knows
	Clients interface {
		HeartbeatClient
		DescribeWorkflowExecution(ctx context.Context, id, runID string) (
			*workflowservice.DescribeWorkflowExecutionResponse, error)
	}
}

// HoldLease renews a lease until the activity is cancelled, which its workflow does after the checkin. It fails when
// the lease is lost. If the workflow has closed without a checkin, it returns the lease, for a new process.
func (l *Leases) HoldLease(ctx context.Context, lease api.Lease) error {
	info, ttl := activity.GetInfo(ctx), lease.TTL()
	due := time.Now().Add(ttl / 2)
	interval := min(max(info.HeartbeatTimeout/heartbeatsPerTimeout, leastHeartbeatInterval), ttl/4)
	for range sleep.Ticks(activity.GetWorkerStopChannel(ctx), interval) {
		err := sendHeartbeat(ctx, l.Clients, info.TaskToken, heartbeatTimeout)
		switch {
		case errors.Is(err, errCancelRequested):
			return temporal.NewCanceledError()
		case errors.Is(err, errActivityEnded):
			return l.abandoned(ctx, info, lease)
		case time.Now().Before(due) && l.InUse(lease):
			continue
		}
		switch err := l.Renew(ctx, lease.ID); api.CodeOf(err) {
		case api.CodeLeaseFenced, api.CodeLeaseNotFound, api.CodeWorkerNotFound, api.CodePoolNotFound:
			return fromCoded(err)
		default:
			if err == nil {
				due = time.Now().Add(ttl / 2)
			}
		}
	}
	return api.Errorf(api.CodeUnavailable, "the agent stops; the next one of its host keeps the lease")
}

// abandoned returns the lease of a workflow that has closed. Another attempt keeps the lease of one that has not.
func (l *Leases) abandoned(ctx context.Context, info activity.Info, lease api.Lease) error {
	of := info.WorkflowExecution
	description, err := l.Clients.DescribeWorkflowExecution(ctx, of.ID, of.RunID)
	if err != nil || !l.InUse(lease) ||
		description.GetWorkflowExecutionInfo().GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return err
	}
	return l.Return(ctx, api.CheckinRequest{LeaseID: lease.ID, Outcome: api.OutcomeClose,
		Error: "its workflow ended before it returned the worker"})
}

// Checkin returns a lease after the calls in flight under it. One that has ended is not an error.
func (l *Leases) Checkin(ctx context.Context, r api.CheckinRequest) error {
	err := l.Return(ctx, r)
	if code := api.CodeOf(err); err == nil || code.Retryable() || code == api.CodeDeadlineExceeded {
		return err
	}
	return fromCoded(err)
}
