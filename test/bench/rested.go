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
func measureRested(ctx context.Context, b *bench) {
	agent := b.localAgent(ctx, "rested")
	sp := b.echo("rested", 1)
	sp.Health.Checkpoint = spec.Duration(24 * time.Hour) // it would write events of its own
	b.startPool(ctx, sp, startPolled)
	call := func() float64 {
		return timed(func() error {
			_, err := agent.Gateway().CallPool(ctx, "rested", pool.Request{Method: "echo", Body: []byte("x")})
			return err
		})
	}
	call()
	worker := api.WorkerWorkflowID("rested", 0)
	before := b.costs(ctx, worker)
	r := b.result
	hot := r.row(fmt.Sprintf("call after a call, p50 of %d", restedCalls), "ms")
	rested := r.row(fmt.Sprintf("call after %s, p50 of %d", b.pause, restedCalls), "ms")
	b.alternate(restedCalls, timedSide{rested, func(int) float64 {
		wait(ctx, b.pause)
		return call()
	}}, timedSide{hot, func(int) float64 { return call() }})
	written := b.costs(ctx, worker).minus(before).events
	ratio := r.ratio("after a pause ÷ at once", rested, hot)
	r.atMost("first call after a pause, relative to the next one", ratio.Median, restedTarget, "×")
	r.row("events in the worker's history, for each call", "").add(written / float64(2*restedCalls*b.rounds))
}
