package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/gateway/dispatch"
)

const (
	callWorkers = 2
	callers     = 8
	callBytes   = 100
	// callWarm goes by before callSpan is measured, in each turn of each side.
	callWarm = 150 * time.Millisecond
	callSpan = time.Second
)

// turn is one side of a comparison of calls.
type turn struct {
	callers int
	call    func(context.Context, int) error // nil for RoadRunner
	row     *series
}

// measureCalls compares calls within one process: from a caller through the pool to a Python worker and back.
func measureCalls(ctx context.Context, b *bench) (err error) {
	agent, err := b.localAgent(ctx, "calls", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agent.Stop()) }()
	rival, err := b.startRoadrunner(ctx, callWorkers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rival.stop()) }()

	r, g := b.result, agent.Gateway()
	var turns []*turn
	rates := map[string]*series{}
	add := func(name string, callers int, call func(context.Context, int) error) {
		rates[name] = r.row(name, "calls/s")
		turns = append(turns, &turn{callers, call, rates[name]})
	}
	const single, eight, four, rivalSingle, rivalEight = "1 caller, max_inflight 1", "8 callers, max_inflight 1",
		"8 callers, max_inflight 4", "1 caller, RoadRunner", "8 callers, RoadRunner"
	const bound = ", a core each"
	add(rivalEight, callers, nil)
	for _, kind := range []struct{ inflight, coresEach int }{{1, 0}, {1, 1}, {4, 0}, {4, 1}} {
		sp := b.steady(fmt.Sprintf("calls-%d-%d", kind.inflight, kind.coresEach), callWorkers, kind.inflight)
		sp.Limits.CPUAffinityEach = kind.coresEach
		pool, err := b.startPool(ctx, sp)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stopPool(context.WithoutCancel(ctx), pool)) }()
		body := bytes.Repeat([]byte("x"), callBytes)
		request := dispatch.Request{Method: "echo", Body: body, Priority: dispatch.DefaultPriority}
		callPool := func(ctx context.Context) (*dispatch.Response, error) { return g.CallPool(ctx, pool.Name(), request) }
		if err := awaitCalls(ctx, callPool, callWorkers); err != nil {
			return err
		}
		byPool := func(ctx context.Context, _ int) error { return checkEcho(body)(callPool(ctx)) }
		how := ""
		if kind.coresEach > 0 {
			how = bound
		}
		if kind.inflight > 1 {
			add(four+how, callers, byPool)
			continue
		}
		add(eight+how, callers, byPool)
		add(single+how, 1, byPool)
		if kind.coresEach == 0 {
			add(rivalSingle, 1, nil)
		}
	}
	leased, drop, err := b.leased(ctx, g)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	add("8 callers, max_inflight 4, leases held by the callers", callers, leased)

	for round := range b.rounds {
		for i := range turns {
			t := turns[(i+round)%len(turns)] // nobody is always first
			n, err := t.measure(ctx, rival)
			if err != nil {
				return err
			}
			t.row.add(n)
		}
	}
	for _, c := range []struct {
		ours, theirs string
		target       float64
	}{{eight, rivalEight, 1}, {four, rivalEight, 1.5}, {single, rivalSingle, 1}} {
		ratio := ratios(c.ours+" ÷ RoadRunner", rates[c.ours], rates[c.theirs])
		r.Rows = append(r.Rows, ratio)
		r.atLeast(c.ours+", in RoadRunner's calls", ratio.Median, c.target, "×")
	}
	for _, ours := range []string{eight, four} {
		r.Rows = append(r.Rows, ratios(ours+bound+" ÷ RoadRunner", rates[ours+bound], rates[rivalEight]))
	}
	r.Rows = append(r.Rows, ratios(single+bound+" ÷ RoadRunner", rates[single+bound], rates[rivalSingle]))
	r.note("%d Python workers each, an echo of %d bytes; each side %s a turn after a warm-up of %s", callWorkers, callBytes, callSpan, callWarm)
	return nil
}

func (t *turn) measure(ctx context.Context, rival *roadrunner) (float64, error) {
	measure := func(span time.Duration) (float64, error) {
		if t.call == nil {
			return rival.perSecond(t.callers, callBytes, span)
		}
		return perSecond(ctx, t.callers, span, t.call)
	}
	if _, err := measure(callWarm); err != nil {
		return 0, err
	}
	return measure(callSpan)
}

func checkEcho(body []byte) func(*dispatch.Response, error) error {
	return func(response *dispatch.Response, err error) error {
		if err == nil && !bytes.Equal(response.Body, body) {
			err = fmt.Errorf("the echo of %d bytes has %d", len(body), len(response.Body))
		}
		return err
	}
}

// leased checks out the workers of a pool of its own for as long as callers use them, half of the callers each.
func (b *bench) leased(ctx context.Context, g *gateway.Gateway) (call func(context.Context, int) error, drop func() error, err error) {
	pool, err := b.startPool(ctx, b.steady("leased", callWorkers, 4))
	if err != nil {
		return nil, nil, err
	}
	leases := make([]*tempool.Lease, callWorkers)
	for i := range leases {
		if leases[i], err = pool.CheckoutOnce(ctx, i, tempool.CheckoutOptions{Holder: "bench"}); err != nil {
			return nil, nil, errors.Join(err, stopPool(context.WithoutCancel(ctx), pool))
		}
	}
	body := bytes.Repeat([]byte("x"), callBytes)
	request := dispatch.Request{Method: "echo", Body: body}
	call = func(ctx context.Context, caller int) error {
		return checkEcho(body)(g.Call(ctx, leases[caller%callWorkers].ID, request))
	}
	drop = func() error {
		ctx := context.WithoutCancel(ctx)
		for _, lease := range leases {
			if err := b.client.Checkin(ctx, api.CheckinRequest{LeaseID: lease.ID}); err != nil {
				return err
			}
		}
		return stopPool(ctx, pool)
	}
	return call, drop, nil
}
