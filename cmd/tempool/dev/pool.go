package dev

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/ready"
	"github.com/tempool/tempool/internal/sleep"
)

const (
	applyTimeout    = 60 * time.Second // for the first answer of a pool from an earlier run
	poolEndTimeout  = 60 * time.Second // for the end of a pool that is stopping
	readyTimeout    = 3 * time.Minute  // for all workers to be in service
	poolStopTimeout = 45 * time.Second
	pollInterval    = 200 * time.Millisecond
)

// startPool starts the pool, or adopts the running pool of that name, and waits until all workers are in service. The
// roster's entries about this host from before the agent's start do not count, since those processes are dead.
func (s *starter) startPool(ctx context.Context) error {
	began := time.Now()
	tracker := ready.Tracker{From: map[int]int64{}, Stale: func(w api.RosterEntry) bool {
		return w.Host == hostID() && w.Since.Before(began)
	}}
	pool := s.client.Pool(s.spec.Pool.Name)
	start := api.PoolStart{Pool: s.spec.Pool.Name, Spec: s.spec}
	err := s.client.StartPool(ctx, start)
	if errors.Is(err, api.ErrPoolExists) {
		var ended bool
		if ended, err = s.adopt(ctx, pool, tracker.From); ended {
			err = s.client.StartPool(ctx, start)
		}
	}
	if err != nil {
		return err
	}
	s.onStop("pool "+pool.Name(), poolStopTimeout, func(ctx context.Context) error { return s.stopPool(ctx, pool) })
	if err := s.awaitReady(ctx, pool, &tracker); err != nil {
		return err
	}
	s.line("Pool %s is ready: %d workers after %s.", pool.Name(), s.spec.Pool.Size,
		time.Since(began).Round(10*time.Millisecond))
	return nil
}

// adopt applies the spec to a running pool, whose workflow answers a moment after the agent's start, and restarts its
// workers that rest. It notes their incarnations in rested: the roster says for a while yet that they rest. ended says
// that the pool was stopping and has ended, so tempool dev can start it again.
func (s *starter) adopt(ctx context.Context, pool *tempool.Pool, rested map[int]int64) (ended bool, err error) {
	s.line("Pool %s is already running; using it.", pool.Name())
	answering, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	applied, err := pool.Apply(answering, s.spec)
	switch {
	case errors.Is(err, api.ErrDraining):
		ending, cancel := context.WithTimeout(ctx, poolEndTimeout)
		defer cancel()
		if err := pool.Wait(ending); err != nil {
			return false, fmt.Errorf("wait for the end of the old pool %s: %w", pool.Name(), err)
		}
		return true, nil
	case err != nil:
		return false, err
	case applied.Changed:
		s.line("Rolling out version %d of its spec.", applied.SpecVersion)
	}
	status, err := pool.Status(ctx)
	if err != nil {
		return false, err
	}
	for _, w := range status.Workers {
		if w.Resting && !w.Removing {
			rested[w.Slot] = w.Incarnation
			if _, err := pool.Restart(ctx,
				api.RestartRequest{Worker: new(w.Slot), Reason: "tempool dev uses the pool", By: "tempool dev"}); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// awaitReady waits until every worker is in service.
func (s *starter) awaitReady(ctx context.Context, pool *tempool.Pool, tracker *ready.Tracker) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var progress ready.Progress
	for {
		status, err := pool.Status(ctx)
		switch {
		case err == nil && status.Stopping:
			return fmt.Errorf("pool %s is being stopped by another program; start again when it has ended", pool.Name())
		case err == nil:
			s.ownsPool = ownHostOnly(status)
			if tracker.Starts == nil { // the pool may have run before
				tracker.Starts = map[int]int64{}
				for _, w := range status.Workers {
					tracker.Starts[w.Slot] = w.Starts
				}
			}
			progress = tracker.Update(status)
			if len(progress.Failing) > 0 {
				return fmt.Errorf("%s\nFix the cause and start again",
					ready.CannotStart(ctx, pool, pool.Name(), progress.Failing[0]))
			}
			if progress.Done() && status.Rollout == nil {
				return nil
			}
		case !api.CodeOf(err).Retryable():
			return err
		}
		if !sleep.For(ctx.Done(), pollInterval) {
			return errors.Join(errors.New(progress.Summary(pool.Name(), readyTimeout)), err)
		}
	}
}

// ownHostOnly reports whether no other host runs workers of the pool.
func ownHostOnly(status api.PoolStatus) bool {
	return !slices.ContainsFunc(status.Workers, func(w api.RosterEntry) bool { return w.Host != "" && w.Host != hostID() })
}

// stopPool stops the pool and waits for its end, unless other hosts run workers of it.
func (s *starter) stopPool(ctx context.Context, pool *tempool.Pool) error {
	if s.server != nil && sleep.Ended(s.server.Done()) {
		return nil // the workers stop with the agent
	}
	if !s.ownsPool {
		s.line("Other hosts run workers of pool %s; not stopping it.", pool.Name())
		return nil
	}
	if _, err := pool.Stop(ctx, "tempool dev stops"); err != nil {
		if errors.Is(err, api.ErrPoolNotFound) {
			return nil // stopped by another program
		}
		return err
	}
	return pool.Wait(ctx)
}
