package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tempool/tempool/gateway/dispatch"
)

const (
	spreadWorkers  = 8
	spreadSessions = 64
	spreadSpan     = 2 * time.Second
	spreadTarget   = 1.05
)

// measureSpread measures how evenly calls are distributed over a pool's workers, with sessions, which have an affinity, and without.
func measureSpread(ctx context.Context, b *bench) error {
	agent, err := b.localAgent(ctx, "spread", "")
	if err != nil {
		return err
	}
	pool, err := b.startPool(ctx, b.withLongLeases("spread", spreadWorkers, 1))
	if err != nil {
		return err
	}
	g, body := agent.Gateway(), bytes.Repeat([]byte("x"), callBytes)
	request := dispatch.Request{Method: "echo", Body: body, Priority: dispatch.DefaultPriority}
	plain := func(ctx context.Context) (*dispatch.Response, error) { return g.CallPool(ctx, pool.Name(), request) }
	inSession := func(ctx context.Context) (*dispatch.Response, error) {
		one := request
		one.Session = fmt.Sprintf("client-%d", rand.N(spreadSessions))
		return g.CallPool(ctx, pool.Name(), one)
	}
	if err := awaitCalls(ctx, plain, spreadWorkers); err != nil {
		return err
	}
	r := b.result
	with := r.row(fmt.Sprintf("calls of the busiest worker ÷ mean of %d workers, %d sessions", spreadWorkers, spreadSessions), "×")
	without := r.row("calls of the busiest worker ÷ mean, no sessions", "×")
	for range b.rounds {
		for _, side := range []struct {
			row  *series
			call func(context.Context) (*dispatch.Response, error)
		}{{with, inSession}, {without, plain}} {
			busiest, err := spread(ctx, side.call)
			if err != nil {
				return err
			}
			side.row.add(busiest)
		}
	}
	r.atMost("calls of the busiest worker ÷ mean, with sessions", with.Median, spreadTarget, "×")
	r.note("%d callers, each call in one of %d random sessions; %s per side and round", callers, spreadSessions, spreadSpan)
	return nil
}

// spread runs callers for spreadSpan and returns the calls of the busiest worker divided by the mean.
func spread(ctx context.Context, call func(context.Context) (*dispatch.Response, error)) (float64, error) {
	var mu sync.Mutex
	served, all := map[string]int{}, 0
	_, err := perSecond(ctx, callers, spreadSpan, func(ctx context.Context, _ int) error {
		response, err := call(ctx)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		served[response.Worker]++
		all++
		return nil
	})
	most := 0
	for _, n := range served {
		most = max(most, n)
	}
	return float64(most) * spreadWorkers / float64(all), err
}
