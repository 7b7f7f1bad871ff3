package main

import (
	"bytes"
	"context"
	"errors"
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

// measureSpread counts how calls fall upon a pool's workers, with sessions, which prefer the worker that served them last, and without.
func measureSpread(ctx context.Context, b *bench) (err error) {
	agent, err := b.localAgent(ctx, "spread", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agent.Stop()) }()
	pool, err := b.startPool(ctx, b.steady("spread", spreadWorkers, 1))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopPool(context.WithoutCancel(ctx), pool)) }()
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
	with := r.row(fmt.Sprintf("busiest ÷ mean of %d workers, %d sessions", spreadWorkers, spreadSessions), "×")
	without := r.row("busiest ÷ mean, no sessions", "×")
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
	r.atMost("busiest worker's calls ÷ the mean, with sessions", with.Median, spreadTarget, "×")
	r.note("%d callers, each call in one of %d sessions at random; %s a turn", callers, spreadSessions, spreadSpan)
	return nil
}

// spread has callers call for a while and returns the calls of the busiest worker over the mean of all.
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
