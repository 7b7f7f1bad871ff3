package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/spec"
)

const (
	// restedCalls is how many calls of each kind are timed in a round.
	restedCalls = 5
	// restedTarget bounds the first call after a pause, relative to one that follows another at once.
	restedTarget = 1.2
)

// measureRested compares the first call of a pool after a pause with one that follows another, and counts what calls
// leave in the histories of the workers.
func measureRested(ctx context.Context, b *bench) error {
	agent, err := b.localAgent(ctx, "rested", "")
	if err != nil {
		return err
	}
	sp := b.echo("rested", 1)
	sp.Health.Checkpoint = spec.Duration(24 * time.Hour) // it would write events of its own
	if _, err := b.startPool(ctx, sp); err != nil {
		return err
	}
	call := func() (float64, error) {
		began := time.Now()
		_, err := agent.Gateway().CallPool(ctx, "rested", pool.Request{Method: "echo", Body: []byte("x")})
		return milliseconds(time.Since(began)), err
	}
	if _, err := call(); err != nil {
		return err
	}
	workflows := []string{api.WorkerWorkflowID("rested", 0)}
	before, err := b.costs(ctx, workflows)
	if err != nil {
		return err
	}
	r := b.result
	hot, rested := r.row(fmt.Sprintf("call after a call, p50 of %d", restedCalls), "ms"),
		r.row(fmt.Sprintf("call after %s, p50 of %d", b.pause, restedCalls), "ms")
	for range b.rounds {
		var hots, resteds []float64
		for range restedCalls {
			if err := wait(ctx, b.pause); err != nil {
				return err
			}
			took, err := call()
			if err != nil {
				return err
			}
			resteds = append(resteds, took)
			if took, err = call(); err != nil {
				return err
			}
			hots = append(hots, took)
		}
		hot.add(median(hots))
		rested.add(median(resteds))
	}
	after, err := b.costs(ctx, workflows)
	if err != nil {
		return err
	}
	ratio := ratios("after a pause ÷ at once", rested, hot)
	r.Rows = append(r.Rows, ratio)
	r.atMost("first call after a pause, relative to the next one", ratio.Median, restedTarget, "×")
	calls := float64(2 * restedCalls * b.rounds)
	r.row("events in the worker's history, for each call", "").add(after.minus(before).events / calls)
	return nil
}
