package sweeper

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

const (
	// endEpochRate spreads the signals to the workers of a lost host, whose starts follow.
	endEpochRate = 100 // a second
	// endEpochAgain is when the workers are notified again: one may have become ready at the last moment, and a pool
	// so new that visibility did not list it.
	endEpochAgain = 30 * time.Second
)

// EndEpoch notifies the workers that had a process on a host, or may have, that its epochs up to r.Epoch have ended.
// Workers that are not concerned ignore it.
func (s *Sweeper) EndEpoch(ctx context.Context, r api.EndEpochRequest) error {
	for _, p := range r.Kept { // first: until then their activities wait for an agent that is gone
		if _, err := s.notifyWorker(ctx, p.Worker, r); err != nil {
			return err
		}
	}
	if err := s.notifyWorkers(ctx, r); err != nil {
		return err
	}
	if err := wait(ctx, endEpochAgain); err != nil {
		return err
	}
	return s.notifyWorkers(ctx, r)
}

// epochEnded is the message to a worker.
func epochEnded(r api.EndEpochRequest, name string) api.EpochEnded {
	message := api.EpochEnded{Host: r.Host, Epoch: r.Epoch, Reason: r.Reason}
	for _, u := range r.Usage {
		if u.Worker == name {
			message.Used = append(message.Used, u) // of one that drains, too
		}
	}
	for _, p := range r.Kept {
		if p.Worker == name {
			message.Kept, message.NextAgent = append(message.Kept, p.Incarnation), r.NextAgent
		}
	}
	return message
}

func (s *Sweeper) notifyWorkers(ctx context.Context, r api.EndEpochRequest) error {
	pools := fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", api.WorkflowPool)
	notified := 0
	err := s.each(ctx, pools, func(pool *workflow.WorkflowExecutionInfo) error {
		concerned, err := s.concerned(ctx, pool.GetExecution().GetWorkflowId(), r)
		if err != nil {
			return err
		}
		for _, name := range concerned {
			sent, err := s.notifyWorker(ctx, name, r)
			if err != nil {
				return err
			}
			if sent {
				notified++
			}
		}
		return nil
	})
	s.Logger.Info("notified workers that their host's agent has ended", "target_host", r.Host, "epoch", r.Epoch,
		"workers", notified, "reason", r.Reason)
	return err
}

// concerned returns the workers of a pool that had a process of an ended epoch, or may have: all of them if the pool
// does not answer, so that one whose workflow is stuck keeps nobody waiting.
func (s *Sweeper) concerned(ctx context.Context, poolID string, r api.EndEpochRequest) (names []string, err error) {
	s.forgetCache(ctx, poolID)
	status, err := s.Status(ctx, poolOf(poolID))
	if err != nil {
		s.Logger.Warn("a pool does not say which workers an ended epoch concerns; notifying all of its workers",
			"pool", poolID, "error", err)
		ids, err := s.openWorkers(ctx, poolID)
		for _, id := range ids {
			if pool, slot, isWorker := workerOf(id); isWorker {
				names = append(names, api.WorkerName(pool, slot))
			}
		}
		if err := s.endDemand(ctx, poolID, r); err != nil {
			s.Logger.Warn("a pool that does not answer may count the demand of an ended epoch until that expires", "error", err)
		}
		return names, err
	}
	s.reportDown(status)
	if status.Scale != nil && slices.ContainsFunc(status.Scale.Demand,
		func(d api.HostDemand) bool { return d.Host == r.Host && d.Epoch <= r.Epoch }) {
		if err := s.endDemand(ctx, poolID, r); err != nil {
			return nil, err
		}
	}
	for _, w := range status.Workers {
		name := api.WorkerName(status.Pool, w.Slot)
		if mayHaveProcess(w, r) || len(epochEnded(r, name).Used) > 0 { // or one drains there
			names = append(names, name)
		}
	}
	return names, nil
}

// notifyWorker notifies a worker, unless its process waits for the next agent, and reports whether it did.
func (s *Sweeper) notifyWorker(ctx context.Context, name string, r api.EndEpochRequest) (bool, error) {
	message := epochEnded(r, name)
	if len(message.Kept) > 0 && r.NextAgent == nil {
		return false, nil
	}
	id := api.PoolWorkflowID("") + name
	heartbeat(ctx)
	s.forgetCache(ctx, id)
	if err := s.signal(ctx, id, api.SignalEpochEnded, message); err != nil {
		return false, fmt.Errorf("notify %s: %w", name, err)
	}
	return true, wait(ctx, time.Second/endEpochRate)
}

// endDemand ends the demand that a pool counts of the gateway of an ended epoch. A pool that counts none ignores it.
func (s *Sweeper) endDemand(ctx context.Context, poolID string, r api.EndEpochRequest) error {
	if err := s.signal(ctx, poolID, api.SignalDemand, api.Demand{Host: r.Host, Epoch: r.Epoch}); err != nil {
		return fmt.Errorf("end the demand of host %s for %s: %w", r.Host, poolID, err)
	}
	return nil
}

// forgetCache lets any agent take the next task of a workflow. Temporal otherwise waits up to ten seconds for the agent
// that had it in its cache, which may be the one that has ended. A failure only costs that time.
func (s *Sweeper) forgetCache(ctx context.Context, workflowID string) {
	_, err := s.Temporal.WorkflowService().ResetStickyTaskQueue(ctx, &workflowservice.ResetStickyTaskQueueRequest{
		Namespace: s.Namespace, Execution: &common.WorkflowExecution{WorkflowId: workflowID},
	})
	if err != nil {
		s.Logger.Info("cannot reset the sticky queue of a workflow", "workflow", workflowID, "error", err)
	}
}

// mayHaveProcess reports whether a worker had a process of an ended epoch as far as its pool knows. A pool learns of a
// start a little after the worker.
func mayHaveProcess(w api.RosterEntry, r api.EndEpochRequest) bool {
	switch {
	case w.Gone || w.Resting:
		return false
	case w.Host == r.Host:
		return w.Epoch <= r.Epoch
	case w.Host == "":
		return true
	}
	switch w.State {
	case lifecycle.Starting, lifecycle.Pending, lifecycle.Created:
		return true
	case lifecycle.Draining: // its next process may wait there until a lease ends
		return true
	}
	return false
}

// wait waits for d. It fails with the error of ctx, or with errStopping.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-activity.GetWorkerStopChannel(ctx):
		return errStopping
	case <-time.After(d):
		return nil
	}
}
