package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/gateway/pool"
)

const (
	callWorkers = 2
	callers     = 8
	callBytes   = 100
	// Each side runs for callWarm before callSpan is measured.
	callWarm = 150 * time.Millisecond
	callSpan = time.Second
)

// callSide is one side of the comparison.
type callSide struct {
	row *series
	run func(ctx context.Context, span time.Duration) (perSecond float64, err error)
}

// measureCalls compares in-process calls, from a caller through the pool to a Python worker and back, with RoadRunner's
// pool.
func measureCalls(ctx context.Context, b *bench) error {
	agent, err := b.localAgent(ctx, "calls", "")
	if err != nil {
		return err
	}
	rr, err := b.startRoadrunner(ctx, callWorkers, 0)
	if err != nil {
		return err
	}
	rrBound, err := b.startRoadrunner(ctx, callWorkers, runtime.NumCPU())
	if err != nil {
		return err
	}

	r, g := b.result, agent.Gateway()
	var sides []*callSide
	rates := map[string]*series{}
	addSide := func(name string, run func(context.Context, time.Duration) (float64, error)) {
		rates[name] = r.row(name, "calls/s")
		sides = append(sides, &callSide{rates[name], run})
	}
	add := func(name string, callers int, call func(context.Context, int) error) {
		addSide(name, func(ctx context.Context, span time.Duration) (float64, error) {
			return perSecond(ctx, callers, span, call)
		})
	}
	addRoadrunner := func(name string, callers int, p *roadrunner) {
		addSide(name, func(_ context.Context, span time.Duration) (float64, error) {
			return p.perSecond(callers, callBytes, span)
		})
	}
	const single, eight, four, rrSingle, rrEight = "1 caller, max_inflight 1", "8 callers, max_inflight 1",
		"8 callers, max_inflight 4", "1 caller, RoadRunner", "8 callers, RoadRunner"
	const bound = ", one core per worker"
	addRoadrunner(rrEight, callers, rr)
	addRoadrunner(rrEight+bound, callers, rrBound)
	for _, kind := range []struct{ inflight, coresEach int }{{1, 0}, {1, 1}, {4, 0}, {4, 1}} {
		sp := b.echoInflight(fmt.Sprintf("calls-%d-%d", kind.inflight, kind.coresEach), callWorkers, kind.inflight)
		sp.Limits.CPUAffinityEach = kind.coresEach
		echo, err := b.startPool(ctx, sp)
		if err != nil {
			return err
		}
		body := bytes.Repeat([]byte("x"), callBytes)
		request := pool.Request{Method: "echo", Body: body, Priority: pool.DefaultPriority}
		callPool := func(ctx context.Context) (*pool.Response, error) { return g.CallPool(ctx, echo.Name(), request) }
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
		addRoadrunner(rrSingle+how, 1, map[int]*roadrunner{0: rr, 1: rrBound}[kind.coresEach])
	}
	leased, err := b.leased(ctx, g)
	if err != nil {
		return err
	}
	add("8 callers, max_inflight 4, client leases", callers, leased)

	for round := range b.rounds {
		for i := range sides {
			side := sides[(i+round)%len(sides)] // each side starts a round in turn
			if _, err := side.run(ctx, callWarm); err != nil {
				return err
			}
			n, err := side.run(ctx, callSpan)
			if err != nil {
				return err
			}
			side.row.add(n)
		}
	}
	for _, c := range []struct {
		ours, theirs string
		target       float64
	}{{eight, rrEight, 1.2}, {four, rrEight, 1.5}, {single, rrSingle, 1.2}} {
		ratio := ratios(c.ours+" ÷ RoadRunner", rates[c.ours], rates[c.theirs])
		r.Rows = append(r.Rows, ratio)
		r.atLeast(c.ours+", relative to RoadRunner", ratio.Median, c.target, "×")
	}
	for _, c := range []struct{ ours, theirs string }{{eight, rrEight}, {four, rrEight}, {single, rrSingle}} {
		for _, theirs := range []string{c.theirs, c.theirs + bound} {
			r.Rows = append(r.Rows, ratios(c.ours+bound+" ÷ "+theirs, rates[c.ours+bound], rates[theirs]))
		}
	}
	r.note("%d Python workers per side, echo of %d bytes; %s per side and round after a warm-up of %s", callWorkers,
		callBytes, callSpan, callWarm)
	return nil
}

func checkEcho(body []byte) func(*pool.Response, error) error {
	return func(response *pool.Response, err error) error {
		if err == nil && !bytes.Equal(response.Body, body) {
			err = fmt.Errorf("sent %d bytes, got %d back", len(body), len(response.Body))
		}
		return err
	}
}

// leased starts a pool and checks out its workers; the callers share the leases evenly.
func (b *bench) leased(ctx context.Context, g *gateway.Gateway) (call func(context.Context, int) error, err error) {
	echo, err := b.startPool(ctx, b.echoInflight("leased", callWorkers, 4))
	if err != nil {
		return nil, err
	}
	leases := make([]*tempool.Lease, callWorkers)
	for i := range leases {
		if leases[i], err = echo.CheckoutOnce(ctx, i, tempool.CheckoutOptions{Holder: "bench"}); err != nil {
			return nil, err
		}
	}
	body := bytes.Repeat([]byte("x"), callBytes)
	request := pool.Request{Method: "echo", Body: body}
	b.atEnd(func(ctx context.Context) (err error) {
		for _, lease := range leases {
			err = errors.Join(err, b.client.Checkin(ctx, api.CheckinRequest{LeaseID: lease.ID}))
		}
		return err
	})
	return func(ctx context.Context, caller int) error {
		return checkEcho(body)(g.Call(ctx, leases[caller%callWorkers].ID, request))
	}, nil
}
