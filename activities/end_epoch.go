package activities

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	// endEpochAgain is when the workers are notified once more: one may have become ready at the last moment, and a pool so new that
	// visibility did not list it.
	endEpochAgain = 30 * time.Second
)

// EndEpoch notifies the workers that had a process on a host, or may have, that its epochs up to r.Epoch have ended. Workers that are not
// concerned ignore it.
func (s *Sweeper) EndEpoch(ctx context.Context, r api.EndEpochRequest) error {
	usage := map[string]api.ProcessUsage{}
	for _, u := range r.Usage {
		usage[u.Worker] = u
	}
	if err := s.notifyOfHeir(ctx, r); err != nil { // first: until then their activities wait for an agent that is gone
		return err
	}
	if err := s.notifyWorkers(ctx, r, usage); err != nil {
		return err
	}
	if err := wait(ctx, endEpochAgain); err != nil {
		return err
	}
	return s.notifyWorkers(ctx, r, usage)
}

// kept are the incarnations of each worker that live on.
func kept(r api.EndEpochRequest) map[string][]int64 {
	all := map[string][]int64{}
	for _, p := range r.Kept {
		all[p.Worker] = append(all[p.Worker], p.Incarnation)
	}
	return all
}

// notifyOfHeir notifies the workers whose processes live on which agent has them now.
func (s *Sweeper) notifyOfHeir(ctx context.Context, r api.EndEpochRequest) error {
	if r.Heir == nil {
		return nil
	}
	all := kept(r)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		activity.RecordHeartbeat(ctx)
		id := api.PoolWorkflowID("") + name
		s.forgetCache(ctx, id)
		message := api.EpochEnded{Host: r.Host, Epoch: r.Epoch, Reason: r.Reason, Kept: all[name], Heir: r.Heir}
		if err := s.signal(ctx, id, api.SignalEpochEnded, message); err != nil {
			return fmt.Errorf("notify %s: %w", name, err)
		}
		if err := wait(ctx, time.Second/endEpochRate); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sweeper) notifyWorkers(ctx context.Context, r api.EndEpochRequest, usage map[string]api.ProcessUsage) error {
	pools := fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", api.WorkflowPool)
	notified, all := 0, kept(r)
	err := s.each(ctx, pools, func(pool *workflow.WorkflowExecutionInfo) error {
		activity.RecordHeartbeat(ctx)
		s.forgetCache(ctx, pool.GetExecution().GetWorkflowId())
		status, err := s.poolStatus(ctx, pool.GetExecution().GetWorkflowId())
		if err != nil {
			return err
		}
		if err := s.endDemand(ctx, status, r); err != nil {
			return err
		}
		for _, w := range status.Workers {
			if !mayHaveProcess(w, r) {
				continue
			}
			name := api.WorkerName(status.Pool, w.Slot)
			if len(all[name]) > 0 && r.Heir == nil {
				continue // its process waits for an heir
			}
			message := api.EpochEnded{Host: r.Host, Epoch: r.Epoch, Reason: r.Reason}
			if len(all[name]) > 0 {
				message.Kept, message.Heir = all[name], r.Heir
			}
			if u, known := usage[name]; known {
				message.Incarnation, message.Usage = u.Incarnation, &u.Usage
			}
			activity.RecordHeartbeat(ctx)
			s.forgetCache(ctx, api.WorkerWorkflowID(status.Pool, w.Slot))
			if err := s.signal(ctx, api.WorkerWorkflowID(status.Pool, w.Slot), api.SignalEpochEnded, message); err != nil {
				return fmt.Errorf("notify %s: %w", name, err)
			}
			notified++
			if err := wait(ctx, time.Second/endEpochRate); err != nil {
				return err
			}
		}
		return nil
	})
	s.Logger.Info("notified workers that their host's agent has ended", "host", r.Host, "epoch", r.Epoch, "workers", notified, "reason", r.Reason)
	return err
}

// endDemand ends the demand that a pool counts of the gateway of an ended epoch.
func (s *Sweeper) endDemand(ctx context.Context, status api.PoolStatus, r api.EndEpochRequest) error {
	if status.Scale == nil || !slices.ContainsFunc(status.Scale.Demand, func(d api.HostDemand) bool { return d.Host == r.Host && d.Epoch <= r.Epoch }) {
		return nil
	}
	if err := s.signal(ctx, api.PoolWorkflowID(status.Pool), api.SignalDemand, api.Demand{Host: r.Host, Epoch: r.Epoch}); err != nil {
		return fmt.Errorf("end the demand of host %s for pool %s: %w", r.Host, status.Pool, err)
	}
	return nil
}

// forgetCache lets any agent take the next task of a workflow. Temporal otherwise waits up to ten seconds for the agent that had it in
// its cache, which may be the one that has ended. A failure only costs that time.
func (s *Sweeper) forgetCache(ctx context.Context, workflowID string) {
	_, err := s.Temporal.WorkflowService().ResetStickyTaskQueue(ctx, &workflowservice.ResetStickyTaskQueueRequest{
		Namespace: s.Namespace, Execution: &common.WorkflowExecution{WorkflowId: workflowID},
	})
	if err != nil {
		s.Logger.Info("cannot reset the sticky queue of a workflow", "workflow", workflowID, "error", err)
	}
}

// mayHaveProcess reports whether a worker had a process of an ended epoch as far as its pool knows. A pool hears of a start a little
// after the worker.
func mayHaveProcess(w api.RosterEntry, r api.EndEpochRequest) bool {
	switch {
	case w.Gone || w.Resting:
		return false
	case w.Host == r.Host:
		return w.Epoch <= r.Epoch
	case w.Host == "":
		return true
	}
	return w.State == lifecycle.Starting || w.State == lifecycle.Pending || w.State == lifecycle.Created
}

// wait waits for d. It fails with the error of ctx, and when this agent stops: another one repeats the activity.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-activity.GetWorkerStopChannel(ctx):
		return errors.New("the agent is stopping")
	case <-timer.C:
		return nil
	}
}
