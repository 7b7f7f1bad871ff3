package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/log"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// waitTimeout limits every wait.
const waitTimeout = 2 * time.Minute

// startPool starts a pool and waits until all workers are ready. The pool stops at the end of the benchmark.
func (b *bench) startPool(ctx context.Context, s spec.Spec) (*tempool.Pool, error) {
	return b.startPoolWithin(ctx, s, 50*time.Millisecond)
}

// startPoolWithin is startPool with a polling interval.
func (b *bench) startPoolWithin(ctx context.Context, s spec.Spec, pause time.Duration) (*tempool.Pool, error) {
	if err := b.client.StartPool(ctx, api.PoolStart{Pool: s.Pool.Name, Spec: s}); err != nil {
		return nil, err
	}
	pool := b.client.Pool(s.Pool.Name)
	b.atEnd(func(ctx context.Context) error { return stopPool(ctx, pool) })
	return pool, awaitPool(ctx, pool, s.Pool.Size, pause)
}

// awaitPool polls the pool until size workers are ready.
func awaitPool(ctx context.Context, pool *tempool.Pool, size int, pause time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	for {
		status, err := pool.Status(ctx)
		if err == nil && status.Ready == size {
			return nil
		}
		if waited := wait(ctx, pause); waited != nil {
			return fmt.Errorf("pool %s has %d of %d workers ready after %s (last error: %v): %w", pool.Name(), status.Ready, size, waitTimeout, err, waited)
		}
	}
}

// awaitWorker polls a worker until it is ready with at least this incarnation.
func awaitWorker(ctx context.Context, pool *tempool.Pool, slot int, incarnation int64, pause time.Duration) (api.WorkerState, error) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	for {
		state, err := pool.State(ctx, slot)
		if err == nil && state.State == lifecycle.Ready && state.Incarnation >= incarnation {
			return state, nil
		}
		if waited := wait(ctx, pause); waited != nil {
			return state, fmt.Errorf("worker %d of pool %s is %s, not ready, after %s (last error: %v): %w", slot, pool.Name(), state.State, waitTimeout, err, waited)
		}
	}
}

// stopPool stops a pool and waits until its processes have exited.
func stopPool(ctx context.Context, pool *tempool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	if _, err := pool.Stop(ctx, "measured"); err != nil {
		return err
	}
	return pool.Wait(ctx)
}

// wait sleeps for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// silentLog discards the log of Temporal's SDK.
func silentLog() log.Logger { return log.NewStructuredLogger(slog.New(slog.DiscardHandler)) }
