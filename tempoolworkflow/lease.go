package tempoolworkflow

import (
	"errors"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
)

const (
	// holdTimeout bounds one attempt of HoldLease, which the next one continues.
	holdTimeout = 365 * 24 * time.Hour
	// maxReason bounds the error of use in the history of the worker, in bytes.
	maxReason = 1 << 10
)

// WithLease leases a worker of a pool to the workflow, calls use, and returns the worker: between the two, only
// ExecuteUnder with this lease reaches the worker's process.
//
// The checkout waits in Temporal until an agent has a free worker, as long as ScheduleToStartTimeout and
// ScheduleToCloseTimeout of ctx's activity options allow. The holder of the lease is the ID of the workflow. The
// worker's host renews the lease until use returns, whether the workflow makes calls or not. When the lease is lost,
// because its process ended, say, the context of use is cancelled; then WithLease fails with the reason, an
// *temporal.ApplicationError whose type is a code such as lease_fenced, if use returns the cancellation.
//
// The worker is returned whatever use returns, also in a cancelled workflow; an error degrades it until a probe passes.
// If the workflow ends while use runs (it is terminated, times out, or fails by a panic), the host returns the worker
// within seconds, for a new process. A panic that does not fail the workflow keeps the lease for the mended code.
func WithLease(ctx workflow.Context, pool string, use func(ctx workflow.Context, lease api.Lease) error) error {
	o := workflow.GetActivityOptions(ctx)
	o.TaskQueue, o.WaitForCancellation = api.PoolQueue(pool), true // a lease that was granted comes, to be returned
	o.StartToCloseTimeout, o.HeartbeatTimeout = api.HostTimeout, 0
	var lease api.Lease
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, o), api.ActivityCheckout).Get(ctx, &lease)
	if err != nil {
		return err
	}
	always, release := workflow.NewDisconnectedContext(ctx)
	using, stop := workflow.WithCancel(ctx)
	hold := workflow.ExecuteActivity(workflow.WithActivityOptions(always, workflow.ActivityOptions{
		TaskQueue: api.HostQueue(lease.Host), ScheduleToStartTimeout: api.HostTimeout, StartToCloseTimeout: holdTimeout,
		HeartbeatTimeout: api.HeartbeatTimeout,
	}), api.ActivityHoldLease, lease)
	var lost error
	returned := false
	workflow.Go(always, func(ctx workflow.Context) {
		if err := hold.Get(ctx, nil); err != nil && !returned {
			lost = ofHost(lease, err)
			stop()
		}
	})
	err = use(using, lease)
	returned = true
	stop() // calls that use has not waited for
	if lost != nil && temporal.IsCanceledError(err) && ctx.Err() == nil {
		err = lost
	}
	request := api.CheckinRequest{LeaseID: lease.ID, Outcome: api.OutcomeOK}
	if err != nil && !workflow.IsContinueAsNewError(err) {
		reason := err.Error()
		request.Outcome, request.Error = api.OutcomeError, strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
	}
	failure := workflow.ExecuteActivity(workflow.WithActivityOptions(always, workflow.ActivityOptions{
		TaskQueue: api.HostQueue(lease.Host), ScheduleToStartTimeout: api.HostTimeout, StartToCloseTimeout: api.HostTimeout,
		ScheduleToCloseTimeout: api.AgentAway,
	}), api.ActivityCheckin, request).Get(always, nil)
	if failure != nil {
		workflow.GetLogger(ctx).Warn("could not return a lease; it expires", "lease", lease.ID, "error", failure)
	}
	release()
	return err
}

// ExecuteUnder is Execute on the worker of a lease that WithLease has taken, on whichever host that is. It fails with
// lease_fenced once the lease has ended, and with unavailable if no agent of the host takes the call.
func ExecuteUnder[Out any](ctx workflow.Context, lease api.Lease, method string, params any) (out Out, err error) {
	o := workflow.GetActivityOptions(ctx)
	o.TaskQueue, o.ScheduleToStartTimeout = api.HostQueue(lease.Host), api.HostTimeout
	out, err = execute[Out](ctx, o, api.ExecuteRequest{Method: method, Lease: lease.ID}, params)
	return out, ofHost(lease, err)
}

// ofHost gives a code to the failure of an activity that no agent of the lease's host has taken.
func ofHost(lease api.Lease, err error) error {
	timeout, is := errors.AsType[*temporal.TimeoutError](err)
	if !is || timeout.TimeoutType() != enums.TIMEOUT_TYPE_SCHEDULE_TO_START {
		return err
	}
	var progress api.ExecuteProgress // of an attempt whose agent was lost
	if timeout.HasLastHeartbeatDetails() && timeout.LastHeartbeatDetails(&progress) != nil {
		progress.Began = true
	}
	return temporal.NewApplicationErrorWithOptions("no agent of host "+lease.Host+" answers for lease "+lease.ID,
		string(api.CodeUnavailable), temporal.ApplicationErrorOptions{NonRetryable: true, Cause: err,
			Details: []any{api.ExecuteFailure{Started: progress.Began}}})
}
