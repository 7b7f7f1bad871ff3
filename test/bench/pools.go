package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/log"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
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

// poll calls check until it returns nil. After limit it fails with the last error of check.
func poll(ctx context.Context, limit, pause time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if waited := wait(ctx, pause); waited != nil {
			return fmt.Errorf("after %s: %w", limit, errors.Join(err, waited))
		}
	}
}

// awaitPool polls the pool until size workers are ready.
func awaitPool(ctx context.Context, pool *tempool.Pool, size int, pause time.Duration) error {
	return awaitWorkers(ctx, pool, size, waitTimeout, pause, func(api.RosterEntry) bool { return true })
}

// awaitWorkers polls the roster until size workers are ready and fit.
func awaitWorkers(ctx context.Context, pool *tempool.Pool, size int, limit, pause time.Duration,
	fits func(api.RosterEntry) bool) error {
	return poll(ctx, limit, pause, func(ctx context.Context) error {
		ready := 0
		status, err := pool.Status(ctx)
		for _, worker := range status.Workers {
			if worker.State == lifecycle.Ready && fits(worker) {
				ready++
			}
		}
		if err == nil && ready != size {
			err = fmt.Errorf("pool %s has %d of %d workers ready", pool.Name(), ready, size)
		}
		return err
	})
}

// awaitWorker polls a worker until it is ready with at least this incarnation.
func awaitWorker(ctx context.Context, pool *tempool.Pool, slot int, incarnation int64, pause time.Duration) error {
	return poll(ctx, waitTimeout, pause, func(ctx context.Context) error {
		state, err := pool.State(ctx, slot)
		if err == nil && (state.State != lifecycle.Ready || state.Incarnation < incarnation) {
			err = fmt.Errorf("%s is %s in incarnation %d, not ready in incarnation %d", state.Worker, state.State,
				state.Incarnation, incarnation)
		}
		return err
	})
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
	if !sleep.For(ctx.Done(), d) {
		return context.Cause(ctx)
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// silentLog discards the log of Temporal's SDK.
func silentLog() log.Logger { return log.NewStructuredLogger(slog.New(slog.DiscardHandler)) }
