package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

const (
	// crashKills is the number of kills for each polling interval.
	crashKills = 20
	// healthyReset is short, so that every crash counts as the first and restarts without backoff.
	healthyReset = 500 * time.Millisecond
	// fastPoll and slowPoll are the polling intervals for a worker's state.
	fastPoll = 5 * time.Millisecond
	slowPoll = 400 * time.Millisecond
	// crashTarget limits the time to ready beyond that of a bare process.
	crashTarget = 80.0 // ms
)

// measureCrash alternates between killing an idle worker and starting the same program without Tempool.
//
// Polling every 5 ms slows the worker, so every other kill polls rarely and is timed by the timestamps of the worker's
// history.
func measureCrash(ctx context.Context, b *bench) error {
	if _, err := b.agent(ctx, "crash"); err != nil {
		return err
	}
	s := b.echo("crash", 1)
	s.Recovery.HealthyReset = spec.Duration(healthyReset)
	pool, err := b.startPool(ctx, s)
	if err != nil {
		return err
	}

	r := b.result
	bare := r.row("bare process, start to hello", "ms")
	observed := r.row("SIGKILL to ready, polled every 5 ms", "ms")
	recorded := r.row("same kills, by the timestamps of the history", "ms")
	undisturbed := r.row("SIGKILL to ready, by the timestamps of the history, without polling", "ms")
	queryTime := r.row("one query of the state", "ms")
	phases := newPhases(r)
	for range crashKills {
		took, err := timeBareSpawn(ctx, s)
		if err != nil {
			return err
		}
		bare.add(took)
		for _, pause := range []time.Duration{fastPoll, slowPoll} {
			c, err := b.crashOnce(ctx, pool, pause)
			if err != nil {
				return err
			}
			if pause == fastPoll {
				observed.add(milliseconds(c.observed))
				recorded.add(milliseconds(c.recorded))
				queryTime.add(milliseconds(c.queryTime))
				continue
			}
			undisturbed.add(milliseconds(c.recorded))
			if err := phases.add(ctx, b, c); err != nil {
				return err
			}
		}
	}
	r.atMost("SIGKILL to ready, beyond the start of a bare process", observed.Median-bare.Median, crashTarget, "ms")
	r.note("the phases are those of the kills without polling, from the worker's event history; the spawn is \"took\" " +
		"in the agent's log")
	return nil
}

func timeBareSpawn(ctx context.Context, s spec.Spec) (float64, error) {
	began := time.Now()
	h, err := spawnBare(ctx, s)
	if err != nil {
		return 0, err
	}
	took := milliseconds(time.Since(began))
	h.kill()
	return took, nil
}

// crash is one kill and what followed.
type crash struct {
	killedAt  time.Time
	exited    lifecycle.Transition // exit of the old incarnation
	ready     lifecycle.Transition // start of the next one
	observed  time.Duration        // from the kill until polling returned ready
	recorded  time.Duration        // from the kill until ready in the history
	queryTime time.Duration        // duration of a query of the idle worker
}

// crashOnce waits until the worker counts as healthy, kills it, and waits for its next incarnation.
func (b *bench) crashOnce(ctx context.Context, pool *tempool.Pool, pause time.Duration) (c crash, err error) {
	if err := wait(ctx, healthyReset+100*time.Millisecond); err != nil {
		return c, err
	}
	asked := time.Now()
	before, err := pool.State(ctx, 0)
	if err != nil {
		return c, err
	}
	c.queryTime = time.Since(asked)
	if before.State != lifecycle.Ready || before.PID == 0 {
		return c, fmt.Errorf("the worker is %s with PID %d, expected ready", before.State, before.PID)
	}
	c.killedAt = time.Now()
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		return c, fmt.Errorf("kill process %d: %w", before.PID, err)
	}
	if pause > fastPoll {
		if err := wait(ctx, pause); err != nil {
			return c, err
		}
	}
	if err = awaitWorker(ctx, pool, 0, before.Incarnation+1, pause); err != nil {
		return c, err
	}
	c.observed = time.Since(c.killedAt)
	history, err := pool.History(ctx, 0)
	if err != nil {
		return c, err
	}
	for _, t := range history {
		switch {
		case t.Event == lifecycle.Exited && t.Incarnation == before.Incarnation:
			c.exited = t
		case t.Event == lifecycle.StartSucceeded && t.Incarnation == before.Incarnation+1:
			c.ready = t
		}
	}
	if c.exited.Timestamp.IsZero() || c.ready.Timestamp.IsZero() {
		return c, fmt.Errorf("the history of %s lacks the exit of incarnation %d or the start of the next", before.Worker,
			before.Incarnation)
	}
	c.recorded = c.ready.Timestamp.Sub(c.killedAt)
	return c, nil
}
