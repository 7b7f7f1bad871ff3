// Package host holds the durable workflow of a host: it owns the host's id, admits one agent at a time under an epoch
// that grows with each admission, and knows by one heartbeat whether that agent lives.
package host

import (
	"errors"
	"strconv"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/emit"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// Run is the whole state of a host: its input, and what it hands to its next run when it continues as new. Its starter
// sets Host only.
type Run struct {
	membership
	// ContinueEvery, if positive, continues as new after that many events; tests of carry-over use it.
	ContinueEvery int `json:"continue_every,omitempty"`
}

const (
	// livenessTimeout bounds one liveness activity; it is then started again.
	livenessTimeout = 365 * 24 * time.Hour
	// runLength is the maximum duration of a run, so that an old version of the code ends within a day.
	runLength = 24 * time.Hour
	// endEpochTimeout bounds one notification of the workers, and endEpochHeartbeat the silence of the agent that does it.
	endEpochTimeout   = time.Hour
	endEpochHeartbeat = time.Minute
	// forgetAfter is how long the workflow of a host without an agent stays open.
	forgetAfter = 30 * 24 * time.Hour
)

// host is one run.
type host struct {
	Run
	ctx       workflow.Context
	began     time.Time
	liveness  *liveness     // of the present epoch, while it is under way
	notifying *notification // of ActivityEndEpoch, while it is under way
	events    int
}

// liveness is one liveness activity.
type liveness struct {
	epoch  int64
	cancel workflow.CancelFunc
	result workflow.Future
}

// notification is one ActivityEndEpoch.
type notification struct {
	epoch  int64
	taken  bool // the workers learn who has taken over their processes
	all    bool // no process is kept
	cancel workflow.CancelFunc
	result workflow.Future
}

// of reports whether it is a notification of this end.
func (t *notification) of(r *api.EndEpochRequest) bool {
	return t.epoch == r.Epoch && t.taken == (r.NextAgent != nil) && t.all == (len(r.Kept) == 0)
}

// Workflow is the workflow of a host, type api.WorkflowHost.
func Workflow(ctx workflow.Context, run Run) error {
	h := &host{Run: run, ctx: ctx, began: workflow.Now(ctx)}
	if err := h.register(); err != nil {
		return err
	}
	for {
		h.reconcile()
		h.endEpochs()
		workflow.SetCurrentDetails(ctx, h.details())
		if h.mayContinue() {
			h.stopLiveness() // the next run notifies the workers of ended epochs again
			return workflow.NewContinueAsNewError(ctx, api.WorkflowHost, h.Run)
		}
		if forgotten, err := h.await(); forgotten || err != nil {
			return err
		}
		h.events++
	}
}

// register sets the handlers of the query and the updates.
func (h *host) register() error {
	if err := workflow.SetQueryHandler(h.ctx, api.QueryStatus,
		func() (api.HostStatus, error) { return h.HostStatus, nil }); err != nil {
		return err
	}
	err := workflow.SetUpdateHandlerWithOptions(h.ctx, api.UpdateJoin, h.join, workflow.UpdateHandlerOptions{
		Validator: func(_ workflow.Context, r api.JoinRequest) error {
			if _, refusal := h.membership.join(r, workflow.Now(h.ctx)); refusal != nil {
				return failure.Refusal(refusal)
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	return workflow.SetUpdateHandler(h.ctx, api.UpdateLeave, func(_ workflow.Context, r api.LeaveRequest) error {
		was := h.State
		if h.membership = h.membership.leave(r, workflow.Now(h.ctx)); h.State != was {
			h.emit(api.EventHostLeft, "its agent has stopped")
		}
		return nil
	})
}

func (h *host) join(_ workflow.Context, r api.JoinRequest) (api.JoinResult, error) {
	next, refusal := h.membership.join(r, workflow.Now(h.ctx))
	if refusal != nil {
		return api.JoinResult{}, failure.Refusal(refusal)
	}
	joined := next.Epoch != h.Epoch
	h.membership = next
	if joined {
		h.emit(api.EventHostJoined, "")
	}
	return api.JoinResult{Epoch: h.Epoch}, nil
}

// reconcile keeps exactly one liveness activity running, for the current epoch, while its agent is up.
func (h *host) reconcile() {
	if h.liveness != nil && (h.liveness.epoch != h.Epoch || !h.State.Alive()) {
		h.stopLiveness()
	}
	if h.liveness != nil || h.State != api.HostUp {
		return
	}
	ctx, cancel := workflow.WithCancel(h.ctx)
	activity := loop.OnEpoch(h.Host, h.Epoch, api.ActivityHostLiveness, "liveness of "+h.Machine, livenessTimeout,
		api.LivenessRequest{Epoch: h.Epoch, Instance: h.Instance, At: workflow.Now(h.ctx)})
	activity.ScheduleToStart, activity.Heartbeat = api.HostHeartbeatTimeout, api.HostHeartbeatTimeout
	h.liveness = &liveness{h.Epoch, cancel, activity.Execute(ctx)}
}

func (h *host) stopLiveness() {
	if h.liveness != nil {
		h.liveness.cancel()
		h.liveness = nil
	}
}

// endEpochs has the workers of ended epochs notified. The end of a later epoch replaces a notification in progress,
// because it includes it.
func (h *host) endEpochs() {
	if t := h.notifying; t != nil && t.result.IsReady() {
		if err := t.result.Get(h.ctx, nil); err != nil {
			workflow.GetLogger(h.ctx).Error("workers were not notified that their host's agent has ended", "target_host", h.Host,
				"error", err)
		}
		if h.Ended != nil && t.of(h.Ended) {
			h.Ended = nil
		}
		h.notifying = nil
	}
	if h.Ended == nil || h.notifying != nil && h.notifying.of(h.Ended) {
		return
	}
	if h.notifying != nil {
		h.notifying.cancel()
	}
	ctx, cancel := workflow.WithCancel(h.ctx)
	activity := loop.Activity{
		Name: api.ActivityEndEpoch, Queue: api.SweeperQueue, Summary: "notify workers that epoch " +
			strconv.FormatInt(h.Ended.Epoch, 10) + " has ended",
		Input: *h.Ended, StartToClose: endEpochTimeout, Heartbeat: endEpochHeartbeat,
		Retry: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1},
	}
	h.notifying = &notification{h.Ended.Epoch, h.Ended.NextAgent != nil, len(h.Ended.Kept) == 0, cancel,
		activity.Execute(ctx)}
}

// await waits until the membership has changed, the liveness has ended or its grace is over; forgotten says that the
// workflow is to end.
func (h *host) await() (forgotten bool, err error) {
	epoch, state := h.Epoch, h.State
	changed := func() bool {
		return h.Epoch != epoch || h.State != state || h.liveness != nil && h.liveness.result.IsReady() ||
			// updates that change nothing make a history long, too
			h.notifying != nil && h.notifying.result.IsReady() || h.mayContinue()
	}
	limit := h.began.Add(runLength).Sub(workflow.Now(h.ctx))
	switch {
	case state == api.HostSuspect || state == api.HostKeeping:
		limit = h.SuspectUntil.Sub(workflow.Now(h.ctx))
	case !state.Alive():
		limit = forgetAfter
	}
	woken, err := workflow.AwaitWithTimeout(h.ctx, max(limit, 0), changed)
	switch {
	case err != nil:
		return false, err
	case woken:
		h.observe()
	case h.State == api.HostSuspect:
		h.lose(workflow.Now(h.ctx))
		h.emit(api.EventHostLost, h.Ended.Reason)
	case h.State == api.HostKeeping:
		h.giveUp(workflow.Now(h.ctx))
	case !h.State.Alive() && h.Ended == nil && workflow.AllHandlersFinished(h.ctx):
		return true, nil
	}
	return false, nil
}

func (h *host) emit(eventType, reason string) {
	emit.Event(h.ctx, eventType, api.HostSource(h.Host), api.HostEvent{
		Epoch: h.Epoch, Instance: h.Instance, Machine: h.Machine, Labels: h.Labels, Capacity: h.Capacity, Reason: reason,
	})
}

// observe takes in the end of the present epoch's liveness.
func (h *host) observe() {
	if h.liveness == nil || !h.liveness.result.IsReady() {
		return
	}
	err := h.liveness.result.Get(h.ctx, nil)
	epoch := h.liveness.epoch
	h.liveness = nil
	if epoch != h.Epoch || !h.State.Alive() {
		return
	}
	var last api.HostHeartbeat
	if timeout, ok := errors.AsType[*temporal.TimeoutError](err); ok && timeout.HasLastHeartbeatDetails() {
		if err := timeout.LastHeartbeatDetails(&last); err != nil {
			workflow.GetLogger(h.ctx).Warn("cannot read the last heartbeat", "target_host", h.Host, "error", err)
		}
	}
	h.suspect(last, workflow.Now(h.ctx))
}

// mayContinue reports whether the run is to continue as new and nothing would be lost by it: a suspect host's grace is
// counted from Since, and the next run starts a liveness of its own.
func (h *host) mayContinue() bool {
	due := workflow.GetInfo(h.ctx).GetContinueAsNewSuggested() || h.ContinueEvery > 0 && h.events >= h.ContinueEvery ||
		h.State.Alive() && workflow.Now(h.ctx).Sub(h.began) >= runLength
	return due && workflow.AllHandlersFinished(h.ctx)
}

// details is what Temporal's Web UI shows of the host.
func (h *host) details() string {
	return "**" + string(h.State) + "** since " + h.Since.UTC().Format(time.RFC3339) + ", epoch " +
		strconv.FormatInt(h.Epoch, 10) + ", agent " + h.Instance + " on " + h.Machine
}
