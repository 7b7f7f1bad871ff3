package main

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/log"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// patience bounds every wait for something that comes by itself.
const patience = 2 * time.Minute

// startPool starts a pool and waits until all of it is ready.
func (b *bench) startPool(ctx context.Context, s spec.Spec) (*tempool.Pool, error) {
	return b.startPoolWithin(ctx, s, 50*time.Millisecond)
}

// startPoolWithin is startPool that sees the end within a pause.
func (b *bench) startPoolWithin(ctx context.Context, s spec.Spec, pause time.Duration) (*tempool.Pool, error) {
	if err := b.client.StartPool(ctx, api.PoolStart{Pool: s.Pool.Name, Spec: s}); err != nil {
		return nil, err
	}
	pool := b.client.Pool(s.Pool.Name)
	return pool, awaitPool(ctx, pool, s.Pool.Size, pause)
}

// awaitPool asks the pool, again and again after a pause, until it says that so many of its workers are ready.
func awaitPool(ctx context.Context, pool *tempool.Pool, size int, pause time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		status, err := pool.Status(ctx)
		if err == nil && status.Ready == size {
			return nil
		}
		if waited := wait(ctx, pause); waited != nil {
			return fmt.Errorf("pool %s has %d of %d workers ready after %s (last error: %v): %w", pool.Name(), status.Ready, size, patience, err, waited)
		}
	}
}

// awaitWorker asks a worker, again and again after a pause, until it is ready under the incarnation or a later one.
func awaitWorker(ctx context.Context, pool *tempool.Pool, slot int, incarnation int64, pause time.Duration) (api.WorkerState, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		state, err := pool.State(ctx, slot)
		if err == nil && state.State == lifecycle.Ready && state.Incarnation >= incarnation {
			return state, nil
		}
		if waited := wait(ctx, pause); waited != nil {
			return state, fmt.Errorf("worker %d of pool %s is %s, not ready, after %s (last error: %v): %w", slot, pool.Name(), state.State, patience, err, waited)
		}
	}
}

// stopPool ends a pool and waits until its processes are gone.
func stopPool(ctx context.Context, pool *tempool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := pool.Stop(ctx, "measured"); err != nil {
		return err
	}
	return pool.Wait(ctx)
}

// wait waits for a while, or until ctx ends.
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

// silentLog drops what Temporal's SDK says.
func silentLog() log.Logger { return noLog{} }

type noLog struct{}

func (noLog) Debug(string, ...any) {}
func (noLog) Info(string, ...any)  {}
func (noLog) Warn(string, ...any)  {}
func (noLog) Error(string, ...any) {}
