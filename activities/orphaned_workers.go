package activities

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.temporal.io/api/workflow/v1"

	"github.com/tempool/tempool/api"
)

// The workflow of a pool that was deleted is in no list of closed ones either. Its workers that have a process are
// ended by the agent of that process; those that rest, and have none, by a sweep.

// endOrphans ends the workers whose pool is not open. Visibility may not list a pool that has just been started, so
// each that is not in open is described. An error for one pool does not stop the others.
func (s *sweep) endOrphans(ctx context.Context, open []string) error {
	orphans := map[string][]string{} // workflow IDs by pool
	query := fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", api.WorkflowWorker)
	err := s.each(ctx, query, func(worker *workflow.WorkflowExecutionInfo) error {
		s.alive(ctx)()
		id := worker.GetExecution().GetWorkflowId()
		if pool, _, isWorker := workerOf(id); isWorker && !slices.Contains(open, pool) {
			orphans[pool] = append(orphans[pool], id)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list the workers: %w", err)
	}
	var failures []error
	for _, pool := range slices.Sorted(maps.Keys(orphans)) {
		if err := s.endOrphansOf(ctx, pool, orphans[pool]); err != nil {
			failures = append(failures, fmt.Errorf("end the workers of pool %s: %w", pool, err))
		}
	}
	return errors.Join(failures...)
}

func (s *sweep) endOrphansOf(ctx context.Context, pool string, workers []string) error {
	newest, err := s.newest(ctx, api.PoolWorkflowID(pool))
	if err != nil || IsOpen(newest.GetStatus()) {
		return err
	}
	word := statusWord(newest.GetStatus())
	s.Logger.Warn("ending the workers of a pool that is not open", "pool", pool, "status", word, "workers", len(workers))
	for _, worker := range workers {
		s.alive(ctx)()
		if err := s.signal(ctx, worker, api.SignalEnd,
			api.Control{Reason: fmt.Sprintf("the workflow of pool %s was %s", pool, word), By: "sweeper"}); err != nil {
			return err
		}
	}
	return nil
}
