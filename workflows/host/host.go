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
	// ContinueEvery, if positive, continues as new after that many iterations; tests of carry-over use it.
	ContinueEvery int `json:"continue_every,omitempty"`
}

const (
	// livenessTimeout bounds one liveness activity; it is then started again.
	livenessTimeout = 365 * 24 * time.Hour
	// endEpochTimeout bounds one notification of the workers, and endEpochHeartbeat the silence of the agent that does it.
	endEpochTimeout   = time.Hour
	endEpochHeartbeat = time.Minute
	// drainTimeout bounds the time in which the agent learns that the host drains.
	drainTimeout = 10 * time.Second
	// forgetAfter is how long the workflow of a host without an agent stays open.
	forgetAfter = 30 * 24 * time.Hour
)

// host is one run.
type host struct {
	Run
	*loop.Loop
	liveness   loop.Call[struct{}]
	livenessOf int64               // the epoch
	notifying  loop.Call[struct{}] // of ActivityEndEpoch
	notified   *api.EndEpochRequest
	wait       loop.Timer     // see await
	draining   workflow.Mutex // of the requests to the agent, whose order counts
}

// Workflow is the workflow of a host, type api.WorkflowHost.
func Workflow(ctx workflow.Context, run Run) error {
	h := &host{Run: run, Loop: loop.New(ctx), draining: workflow.NewMutex(ctx)}
	if err := h.register(); err != nil {
		return err
	}
	h.OnCancel(ctx, func() {}) // it ends Await
	for {
		h.reconcile()
		h.endEpochs()
		workflow.SetCurrentDetails(h.Ctx, h.details())
		if err := ctx.Err(); err != nil {
			return err
		}
		// without an agent, the run is the one that forgets the host
		if h.MustContinue() || h.State.Alive() && h.ContinueDue(h.ContinueEvery) {
			h.liveness.Cancel() // the next run notifies the workers of ended epochs again
			return workflow.NewContinueAsNewError(h.Ctx, api.WorkflowHost, h.Run)
		}
		if forgotten, err := h.await(); forgotten || err != nil {
			return err
		}
	}
}

// register sets the handlers of the query and the updates.
func (h *host) register() error {
	if err := workflow.SetQueryHandler(h.Ctx, api.QueryStatus,
		func() (api.HostStatus, error) { return h.HostStatus, nil }); err != nil {
		return err
	}
	return loop.SetUpdates(h.Ctx,
		loop.Update{Name: api.UpdateJoin, Handler: h.join, Options: failure.Validator(func(r api.JoinRequest) *api.Error {
			_, refusal := h.membership.join(r, h.Now())
			return refusal
		})},
		loop.Update{Name: api.UpdateDrainHost, Handler: h.drain},
		loop.Update{Name: api.UpdateLeave, Handler: func(_ workflow.Context, r api.LeaveRequest) error {
			was := h.State
			if h.membership = h.membership.leave(r, h.Now()); h.State != was {
				h.emit(api.EventHostLeft, "its agent has stopped")
			}
			h.WakeUp()
			return nil
		}})
}

func (h *host) join(_ workflow.Context, r api.JoinRequest) (api.JoinResult, error) {
	if r.Instance != h.Instance { // the end of the liveness has what the agent before had last reported
		h.HandleFutures()
		h.takeLiveness()
	}
	next, refusal := h.membership.join(r, h.Now())
	if refusal != nil {
		return api.JoinResult{}, failure.Refusal(refusal)
	}
	joined := next.Epoch != h.Epoch
	h.membership = next
	h.WakeUp()
	if joined {
		h.emit(api.EventHostJoined, "")
	}
	return api.JoinResult{Epoch: h.Epoch, Draining: h.Draining != ""}, nil
}

// drain has the host take no starts, or take them again, and returns when the agent does so. One that does not answer
// learns of it when it joins.
func (h *host) drain(ctx workflow.Context, r api.DrainHostRequest) error {
	if err := h.draining.Lock(ctx); err != nil {
		return err
	}
	defer h.draining.Unlock()
	h.Draining = r.Reason
	if !h.State.Alive() {
		return nil
	}
	epoch := h.Epoch
	activity := loop.OnEpoch(h.Host, epoch, api.ActivityDrainHost, "takes starts or drains", drainTimeout,
		r.Reason != "")
	activity.ScheduleToStartTimeout = api.HostHeartbeatTimeout
	if err := activity.Execute(ctx).Get(ctx, nil); err != nil && h.Epoch == epoch { // a later agent knows by its join
		return failure.Refusal(api.Errorf(api.CodeUnavailable,
			"the agent of host %s does not answer, and learns of this when it joins again; or repeat it: %w", h.Host, err))
	}
	return nil
}

// reconcile keeps exactly one liveness activity running, for the current epoch, while its agent is up.
func (h *host) reconcile() {
	h.takeLiveness()
	if h.livenessOf != h.Epoch || !h.State.Alive() {
		h.liveness.Cancel()
	}
	if h.liveness.Running() || h.State != api.HostUp {
		return
	}
	h.livenessOf = h.Epoch
	activity := loop.OnEpoch(h.Host, h.Epoch, api.ActivityHostLiveness, "liveness of "+h.Machine, livenessTimeout,
		api.LivenessRequest{Epoch: h.Epoch, Instance: h.Instance, At: h.Now()})
	activity.ScheduleToStartTimeout, activity.HeartbeatTimeout = api.HostHeartbeatTimeout, api.HostHeartbeatTimeout
	h.liveness.Start(h.Loop, activity)
}

// takeLiveness takes the end of the present epoch's liveness.
func (h *host) takeLiveness() {
	r := h.liveness.Take()
	if r == nil || h.livenessOf != h.Epoch || !h.State.Alive() {
		return
	}
	var last api.HostHeartbeat
	if timeout, ok := errors.AsType[*temporal.TimeoutError](r.Err); ok && timeout.HasLastHeartbeatDetails() {
		if err := timeout.LastHeartbeatDetails(&last); err != nil {
			workflow.GetLogger(h.Ctx).Warn("cannot read the last heartbeat", "target_host", h.Host, "error", err)
		}
	}
	h.suspect(last, h.Now())
}

// endEpochs has the workers of ended epochs notified. The end of a later epoch replaces a notification in progress,
// because it includes it.
func (h *host) endEpochs() {
	if r := h.notifying.Take(); r != nil {
		if r.Err != nil {
			workflow.GetLogger(h.Ctx).Error("workers were not notified that their host's agent has ended", "target_host", h.Host,
				"error", r.Err)
		}
		if h.Ended != nil && sameEnd(h.Ended, h.notified) {
			h.Ended = nil
		}
	}
	if h.Ended == nil || h.notifying.Running() && sameEnd(h.Ended, h.notified) {
		return
	}
	h.notifying.Cancel()
	h.notified = h.Ended
	activity := loop.On(api.SweeperQueue, api.ActivityEndEpoch, "notify workers that epoch "+
		strconv.FormatInt(h.Ended.Epoch, 10)+" has ended", endEpochTimeout, *h.Ended)
	activity.ScheduleToStartTimeout, activity.HeartbeatTimeout = 0, endEpochHeartbeat // it waits for any agent
	activity.RetryPolicy = &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1}
	h.notifying.Start(h.Loop, activity)
}

// sameEnd reports whether two ends tell workers the same of the same epoch.
func sameEnd(a, b *api.EndEpochRequest) bool {
	return a.Epoch == b.Epoch && (a.NextAgent == nil) == (b.NextAgent == nil) && (len(a.Kept) == 0) == (len(b.Kept) == 0)
}

// await waits until the membership has changed, an activity has ended, or the host's state has lasted as long as it
// may; forgotten says that the workflow is to end.
func (h *host) await() (forgotten bool, err error) {
	epoch, state := h.Epoch, h.State
	if !h.wait.Running() {
		limit := forgetAfter
		switch {
		case state == api.HostSuspect || state == api.HostKeeping:
			limit = h.SuspectUntil.Sub(h.Now())
		case state.Alive():
			limit = max(time.Second, h.Ends().Sub(h.Now())) // a handler may delay the end
		}
		h.wait.Start(h.Loop, max(0, limit), "")
	}
	if err := h.Await(); err != nil {
		return false, err
	}
	over := h.wait.Take()
	switch {
	case h.Epoch != epoch || h.State != state || h.liveness.Ended() || h.notifying.Ended():
		h.wait = loop.Timer{} // the next one is for the next state
	case !over:
	case h.State == api.HostSuspect:
		h.lose(h.Now())
		h.emit(api.EventHostLost, h.Ended.Reason)
	case h.State == api.HostKeeping:
		h.giveUp(h.Now())
	case !h.State.Alive():
		return h.Ended == nil && workflow.AllHandlersFinished(h.Ctx), nil
	}
	return false, nil
}

func (h *host) emit(eventType, reason string) {
	emit.Event(h.Ctx, eventType, api.HostSource(h.Host), api.HostEvent{
		Epoch: h.Epoch, Instance: h.Instance, Machine: h.Machine, Labels: h.Labels, Capacity: h.Capacity, Reason: reason,
	})
}

// details is what Temporal's Web UI shows of the host.
func (h *host) details() string {
	return "**" + string(h.State) + "** since " + h.Since.UTC().Format(time.RFC3339) + ", epoch " +
		strconv.FormatInt(h.Epoch, 10) + ", agent " + h.Instance + " on " + h.Machine
}
