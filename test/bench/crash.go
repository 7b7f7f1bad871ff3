package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

const (
	// crashKills is the number of kills.
	crashKills = 20
	// healthyReset is short, so that every crash counts as the first and restarts without backoff.
	healthyReset = 500 * time.Millisecond
	// crashPoll is the polling interval for a worker's state.
	crashPoll = 5 * time.Millisecond
	// crashTarget limits the time to ready beyond that of a bare process.
	crashTarget = 80.0 // ms
)

// measureCrash alternates between killing an idle worker and starting the same program without Tempool.
func measureCrash(ctx context.Context, b *bench) {
	b.agent("crash", false)
	s := b.echo("crash", 1)
	s.Recovery.HealthyReset = spec.Duration(healthyReset)
	pool := b.startPool(ctx, s, startPolled)
	r := b.result
	bare := r.row("bare process, start to hello", "ms")
	observed := r.row("SIGKILL to ready, polled every 5 ms", "ms")
	recorded := r.row("same kills, by the timestamps of the history", "ms")
	query := r.row("one query of the state", "ms")
	for range crashKills {
		bare.add(timeBare(ctx, s))
		wait(ctx, healthyReset+100*time.Millisecond)
		var before api.WorkerState
		query.add(timed(func() (err error) {
			before, err = pool.State(ctx, 0)
			return err
		}))
		if before.State != lifecycle.Ready || before.PID == 0 {
			check(fmt.Errorf("the worker is %s with PID %d, expected ready", before.State, before.PID))
		}
		killed := time.Now()
		check(syscall.Kill(before.PID, syscall.SIGKILL))
		awaitWorker(ctx, pool, before.Incarnation+1)
		observed.add(milliseconds(time.Since(killed)))
		for _, t := range must(pool.History(ctx, 0)) {
			if t.Event == lifecycle.StartSucceeded && t.Incarnation == before.Incarnation+1 {
				recorded.add(milliseconds(t.Timestamp.Sub(killed)))
			}
		}
	}
	r.atMost("SIGKILL to ready, beyond the start of a bare process", observed.Median-bare.Median, crashTarget, "ms")
}

// awaitWorker polls the state of a pool's first worker until it is ready with at least this incarnation.
func awaitWorker(ctx context.Context, pool *tempool.Pool, incarnation int64) {
	poll(ctx, crashPoll, func(ctx context.Context) error {
		state, err := pool.State(ctx, 0)
		if err == nil && (state.State != lifecycle.Ready || state.Incarnation < incarnation) {
			err = fmt.Errorf("%s is %s in incarnation %d, not ready in incarnation %d", state.Worker, state.State,
				state.Incarnation, incarnation)
		}
		return err
	})
}
