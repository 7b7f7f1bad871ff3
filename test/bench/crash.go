package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

const (
	// kills is how often the worker is killed while it is asked in a quick rhythm, and as often while it is hardly asked.
	kills = 20
	// healthyReset makes every crash the first of its row, as after a long healthy life: without backoff.
	healthyReset = 500 * time.Millisecond
	// quickPoll and slowPoll are the pauses between two questions for a worker's state.
	quickPoll = 5 * time.Millisecond
	slowPoll  = 400 * time.Millisecond
	// crashTarget is how much later than by hand the next incarnation may be ready.
	crashTarget = 250.0
)

// measureCrash kills an idle worker again and again, and spawns the same program by hand in between.
func measureCrash(ctx context.Context, b *bench) (err error) {
	agent, err := b.agent(ctx, "crash")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agent.stop()) }()
	s := b.echo("crash", 1)
	s.Recovery.HealthyReset = spec.Duration(healthyReset)
	pool, err := b.startPool(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopPool(context.WithoutCancel(ctx), pool)) }()

	r := b.result
	byHand := r.row("spawned by hand until its hello", "ms")
	seen := r.row("SIGKILL until state says ready, asked every 5 ms", "ms")
	recorded := r.row("the same kills, by the worker's own history", "ms")
	undisturbed := r.row("SIGKILL until ready by history, hardly asked", "ms")
	question := r.row("one question for the state", "ms")
	phases := newPhases(r)
	for range kills {
		took, err := timeByHand(ctx, s)
		if err != nil {
			return err
		}
		byHand.add(took)
		for _, pause := range []time.Duration{quickPoll, slowPoll} {
			c, err := b.crashOnce(ctx, pool, pause)
			if err != nil {
				return err
			}
			if pause == quickPoll {
				seen.add(milliseconds(c.seen))
				recorded.add(milliseconds(c.recorded))
				question.add(milliseconds(c.question))
				continue
			}
			undisturbed.add(milliseconds(c.recorded))
			if err := phases.add(ctx, b, c); err != nil {
				return err
			}
		}
	}
	r.atMost("next incarnation ready, median, beyond a spawn by hand", seen.Median-byHand.Median, crashTarget, "ms")
	r.note("the phases are of the kills that were hardly asked for, from the event history of the worker; \"spawn\" is what the agent's log calls took")
	return nil
}

func timeByHand(ctx context.Context, s spec.Spec) (float64, error) {
	began := time.Now()
	h, err := spawnByHand(ctx, s)
	if err != nil {
		return 0, err
	}
	took := milliseconds(time.Since(began))
	h.kill()
	return took, nil
}

// crash is one kill and what followed.
type crash struct {
	killedAt time.Time
	exited   lifecycle.Transition // the old incarnation's end
	ready    lifecycle.Transition // the next one's beginning
	seen     time.Duration        // from the kill until the state said ready
	recorded time.Duration        // from the kill until the history's ready
	question time.Duration        // what asking for the state takes, when nothing happens
}

// crashOnce lets the worker live for long enough, kills it, and waits for its next incarnation.
func (b *bench) crashOnce(ctx context.Context, pool *tempool.Pool, pause time.Duration) (c crash, err error) {
	if err := wait(ctx, healthyReset+100*time.Millisecond); err != nil {
		return c, err
	}
	asked := time.Now()
	before, err := pool.State(ctx, 0)
	if err != nil {
		return c, err
	}
	c.question = time.Since(asked)
	if before.State != lifecycle.Ready || before.PID == 0 {
		return c, fmt.Errorf("the worker is %s with PID %d; it should be ready", before.State, before.PID)
	}
	c.killedAt = time.Now()
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		return c, fmt.Errorf("kill process %d: %w", before.PID, err)
	}
	if pause > quickPoll {
		if err := wait(ctx, pause); err != nil {
			return c, err
		}
	}
	if _, err = awaitWorker(ctx, pool, 0, before.Incarnation+1, pause); err != nil {
		return c, err
	}
	c.seen = time.Since(c.killedAt)
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
		return c, fmt.Errorf("the history of %s lacks the end of incarnation %d or the beginning of the next", before.Worker, before.Incarnation)
	}
	c.recorded = c.ready.Timestamp.Sub(c.killedAt)
	return c, nil
}
