package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"go.temporal.io/sdk/log"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker"
)

// waitTimeout limits every wait.
const waitTimeout = 2 * time.Minute

// localAgent starts an agent within this process, for in-process calls.
func (b *bench) localAgent(ctx context.Context, hostID string) *worker.Agent {
	agent := must(worker.Start(ctx, worker.Config{
		Address: b.server.Address(), HostID: hostID, StateDir: filepath.Join(b.dir, hostID),
		Logger: slog.New(slog.DiscardHandler),
	}))
	b.atEnd(func(context.Context) error { return agent.Stop() })
	return agent
}

// startPool starts a pool and waits until all workers are ready, asking at an interval. The pool stops at the end of
// the current part.
func (b *bench) startPool(ctx context.Context, s spec.Spec, pause time.Duration) *tempool.Pool {
	check(b.client.StartPool(ctx, api.PoolStart{Pool: s.Pool.Name, Spec: s}))
	pool := b.client.Pool(s.Pool.Name)
	b.atEnd(func(ctx context.Context) error { return stopPool(ctx, pool) })
	awaitWorkers(ctx, pool, s.Pool.Size, 1, pause)
	return pool
}

// startPolled is the interval of a start that nothing measures.
const startPolled = 50 * time.Millisecond

// poll calls try until it returns nil. After waitTimeout the benchmark ends with the last error of try.
func poll(ctx context.Context, pause time.Duration, try func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		if !sleep.For(ctx.Done(), pause) {
			check(fmt.Errorf("after %s: %w", waitTimeout, errors.Join(err, context.Cause(ctx))))
		}
	}
}

// awaitWorkers polls the roster until size workers are ready in at least an incarnation.
func awaitWorkers(ctx context.Context, pool *tempool.Pool, size int, incarnation int64, pause time.Duration) {
	poll(ctx, pause, func(ctx context.Context) error {
		ready := 0
		status, err := pool.Status(ctx)
		for _, worker := range status.Workers {
			if worker.State == lifecycle.Ready && worker.Incarnation >= incarnation {
				ready++
			}
		}
		if err == nil && ready != size {
			err = fmt.Errorf("pool %s has %d of %d workers ready", pool.Name(), ready, size)
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

// wait sleeps for d.
func wait(ctx context.Context, d time.Duration) {
	if !sleep.For(ctx.Done(), d) {
		check(context.Cause(ctx))
	}
}

// perSecond runs a number of callers for a span and returns their calls per second. Each caller, numbered from 0, calls
// again as soon as its last call returns.
func perSecond(ctx context.Context, callers int, span time.Duration,
	call func(ctx context.Context, caller int) error) float64 {
	counts, failures := make([]int, callers), make([]error, callers)
	began := time.Now()
	sleep.Each(callers, callers, func(i int) {
		for time.Since(began) < span && failures[i] == nil {
			failures[i] = call(ctx, i)
			counts[i]++
		}
	})
	took := time.Since(began).Seconds()
	check(errors.Join(failures...))
	all := 0
	for _, n := range counts {
		all += n
	}
	return float64(all) / took
}

// timed returns how many milliseconds do takes.
func timed(do func() error) float64 {
	began := time.Now()
	check(do())
	return milliseconds(time.Since(began))
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// silentLog discards the log of Temporal's SDK.
func silentLog() log.Logger { return log.NewStructuredLogger(slog.New(slog.DiscardHandler)) }
