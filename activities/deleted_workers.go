package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tempool/tempool/api"
)

// Temporal does not list a deleted workflow among the closed ones. So a sweep also checks whether the workers on the
// rosters of pools exist.

const (
	// rosterInterval is the shortest time between two checks of a pool's roster. One sweep checks rostersPerSweep pools;
	// more pools take turns.
	rosterInterval  = time.Minute
	rostersPerSweep = 4
	// rosterTimeout bounds the check of one roster.
	rosterTimeout = 10 * time.Second
)

// reportMissing checks the rosters of the next pools, and before the first one looks for workers without a pool. An
// error for one pool does not stop the others.
func (s *sweep) reportMissing(ctx context.Context) error {
	var failure error
	if len(s.rosters) == 0 {
		now := time.Now()
		if now.Sub(s.listed) < rosterInterval {
			return nil
		}
		pools, err := s.openPools(ctx)
		if err != nil {
			return fmt.Errorf("list the pools: %w", err)
		}
		s.rosters, s.listed = pools, now
		failure = s.endOrphans(ctx, pools)
	}
	for range min(len(s.rosters), rostersPerSweep) {
		s.alive(ctx)()
		pool := s.rosters[0]
		s.rosters = s.rosters[1:]
		if err := s.reportMissingOf(ctx, pool); err != nil {
			failure = errors.Join(failure, fmt.Errorf("pool %s: %w", pool, err))
		}
	}
	return failure
}

// reportMissingOf signals a pool which of its workers have no open workflow although its roster says so. Visibility may
// not list a workflow that has just started, so the sweep describes each worker that is not listed.
func (s *sweep) reportMissingOf(ctx context.Context, pool string) error {
	ctx, cancel := context.WithTimeout(ctx, rosterTimeout)
	defer cancel()
	id := api.PoolWorkflowID(pool)
	status, err := s.poolStatus(ctx, id)
	if err != nil {
		return err
	}
	listed, err := s.openWorkers(ctx, id, s.alive(ctx))
	if err != nil {
		return err
	}
	open := make(map[string]bool, len(listed))
	for _, worker := range listed {
		open[worker] = true
	}
	for _, w := range status.Workers {
		worker := api.WorkerWorkflowID(pool, w.Slot)
		if w.Gone || w.RunID == "" || open[worker] {
			continue
		}
		newest, err := s.newest(ctx, worker)
		if err != nil {
			return err
		}
		if newest != nil && (IsOpen(newest.GetStatus()) || newest.GetFirstRunId() != w.RunID) {
			continue
		}
		word := statusWord(newest.GetStatus())
		s.Logger.Warn("the pool lists a worker that has no open workflow", "worker", api.WorkerName(pool, w.Slot),
			"status", word)
		if err := s.signal(ctx, id, api.SignalWorkerClosed,
			api.WorkerClosed{Slot: w.Slot, RunID: w.RunID, Status: word}); err != nil {
			return err
		}
	}
	return nil
}
