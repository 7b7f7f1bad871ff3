package starter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

const (
	answerLimit   = 60 * time.Second // for a pool workflow of an earlier run to answer, now that an agent is there again
	endLimit      = 60 * time.Second // for a pool that is stopping to end
	readyLimit    = 3 * time.Minute  // for all workers to serve
	poolStopLimit = 45 * time.Second
	lookEvery     = 200 * time.Millisecond
	// failedStarts is after how many incarnations that never served the starter gives up on a worker.
	failedStarts = 5
)

// startPool starts the pool, or takes over one of that name that is running, and waits until its workers serve.
func (s *starter) startPool(ctx context.Context) error {
	began := time.Now()
	pool := s.client.Pool(s.spec.Pool.Name)
	start := api.PoolStart{Pool: s.spec.Pool.Name, Spec: s.spec}
	err := s.client.StartPool(ctx, start)
	if errors.Is(err, api.ErrPoolExists) {
		var ended bool
		if ended, err = s.takeOver(ctx, pool); ended {
			err = s.client.StartPool(ctx, start)
		}
	}
	if err != nil {
		return err
	}
	s.onStop("pool "+pool.Name(), poolStopLimit, func(ctx context.Context) error { return s.stopPool(ctx, pool) })
	if err := s.awaitReady(ctx, pool, began); err != nil {
		return err
	}
	if s.unpacked != "" { // every worker runs on this version now
		if err := removeOlder(s.folder.files(), s.unpacked); err != nil {
			s.log.Warn("files of earlier versions stay", "error", err)
		}
	}
	s.screen.line("Pool %s serves with %d workers, ready after %s.", pool.Name(), s.spec.Pool.Size, rounded(time.Since(began)))
	return nil
}

// takeOver brings a running pool to this spec. ended says that it was stopping and has ended, so that it can be started anew.
func (s *starter) takeOver(ctx context.Context, pool *tempool.Pool) (ended bool, err error) {
	s.screen.line("Pool %s runs already; it is taken over.", pool.Name())
	status, err := answer(ctx, pool)
	if err != nil {
		return false, err
	}
	if status.Stopping {
		ending, cancel := context.WithTimeout(ctx, endLimit)
		defer cancel()
		if err := pool.Wait(ending); err != nil {
			return false, fmt.Errorf("wait for the old pool %s to end: %w", pool.Name(), err)
		}
		return true, nil
	}
	applied, err := pool.Apply(ctx, s.spec)
	if err != nil {
		return false, err
	}
	if applied.Changed {
		s.screen.line("Its spec differs; version %d is rolled out.", applied.SpecVersion)
	}
	for _, w := range status.Workers {
		if w.Resting && w.Slot < s.spec.Pool.Size {
			slot := w.Slot
			if _, err := pool.Restart(ctx, api.RestartRequest{Worker: &slot, Reason: "the starter takes the pool over", By: "starter"}); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// answer waits until the pool's workflow answers: after a start of the agent that may take a moment.
func answer(ctx context.Context, pool *tempool.Pool) (api.PoolStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		status, err := pool.Status(ctx)
		if err == nil || !api.CodeOf(err).Retryable() {
			return status, err
		}
		select {
		case <-ctx.Done():
			return status, err
		case <-ticker.C:
		}
	}
}

// awaitReady waits until every worker serves in a process that lives: what the roster says of this host's processes from before
// the agent's start does not count.
func (s *starter) awaitReady(ctx context.Context, pool *tempool.Pool, began time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	var waiting []api.RosterEntry
	first := map[int]int64{} // the incarnation each slot was in when first seen
	for {
		status, err := pool.Status(ctx)
		switch {
		case err == nil && status.Stopping:
			return fmt.Errorf("pool %s is stopping, as somebody asked it to; start again when it has ended", pool.Name())
		case err == nil:
			s.ours = ownHostOnly(status)
			if waiting = notServing(status, began); len(waiting) == 0 && len(status.Workers) >= status.Size && status.Rollout == nil {
				return nil
			}
			for _, w := range waiting {
				if _, seen := first[w.Slot]; !seen {
					first[w.Slot] = w.Incarnation
				}
				if w.Resting || w.Incarnation-first[w.Slot] > failedStarts {
					return s.cannotStart(ctx, pool, w)
				}
			}
		case !api.CodeOf(err).Retryable():
			return err
		}
		select {
		case <-ctx.Done():
			return notReady(pool.Name(), waiting, err)
		case <-ticker.C:
		}
	}
}

// notServing lists the workers that do not serve in a process started, or heard of, since began.
func notServing(status api.PoolStatus, began time.Time) []api.RosterEntry {
	var waiting []api.RosterEntry
	for _, w := range status.Workers {
		serves := w.State.InService() && !w.Gone
		stale := w.Host == hostID() && w.Since.Before(began)
		if w.Slot < status.Size && (!serves || stale) {
			waiting = append(waiting, w)
		}
	}
	return waiting
}

// ownHostOnly reports whether no other host runs workers of the pool.
func ownHostOnly(status api.PoolStatus) bool {
	for _, w := range status.Workers {
		if w.Host != "" && w.Host != hostID() {
			return false
		}
	}
	return true
}

// cannotStart says why a worker does not come into service, with the end of its last process's log.
func (s *starter) cannotStart(ctx context.Context, pool *tempool.Pool, w api.RosterEntry) error {
	reason := w.Reason
	if transitions, err := pool.History(ctx, w.Slot); err == nil {
		for _, t := range transitions {
			if t.To == lifecycle.Failed || t.To == lifecycle.Killed || t.To == lifecycle.Finished {
				reason = t.Reason
			}
		}
	}
	return fmt.Errorf("worker %s cannot start: %s\nMend the cause and start again", api.WorkerName(pool.Name(), w.Slot), strings.TrimSpace(reason))
}

func notReady(pool string, waiting []api.RosterEntry, err error) error {
	text := fmt.Sprintf("pool %s is not ready after %s", pool, readyLimit)
	if len(waiting) > 0 {
		w := waiting[0]
		text += fmt.Sprintf("; worker %s is %s: %s", api.WorkerName(pool, w.Slot), w.State, strings.TrimSpace(w.Reason))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return errors.New(text)
}

// stopPool stops the pool and waits for its end. One that other hosts serve too is left alone.
func (s *starter) stopPool(ctx context.Context, pool *tempool.Pool) error {
	if s.serverGone() {
		return nil // its workers end with the agent
	}
	if !s.ours {
		s.screen.line("Other hosts run workers of pool %s, so it goes on there.", pool.Name())
		return nil
	}
	if _, err := pool.Stop(ctx, "the starter ends"); err != nil {
		if errors.Is(err, api.ErrPoolNotFound) {
			return nil // somebody has stopped it
		}
		return err
	}
	return pool.Wait(ctx)
}
