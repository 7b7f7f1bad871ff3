package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
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

// measureCalls compares in-process calls, from a caller through the pool to a Python worker and back, with RoadRunner's
// pool.
func measureCalls(ctx context.Context, b *bench) {
	agent := b.localAgent(ctx, "calls")
	rr, rrBound := b.startRoadrunner(ctx, "worker.py", "", 0), b.startRoadrunner(ctx, "worker.py", "", runtime.NumCPU())
	rrEqual := b.startRoadrunner(ctx, "worker_equal.py", "echo\x00", runtime.NumCPU())

	r, g := b.result, agent.Gateway()
	var sides []*side
	named := map[string]*side{}
	addSide := func(name string, program int, workers []int, run func(time.Duration) float64) {
		named[name] = r.side(name, "calls/s", program, workers, run)
		sides = append(sides, named[name])
	}
	add := func(name string, workers []int, callers int, call func(context.Context, int) error) {
		addSide(name, os.Getpid(), workers, func(span time.Duration) float64 { return perSecond(ctx, callers, span, call) })
	}
	addRoadrunner := func(name string, callers int, p *roadrunner) {
		addSide(name, p.pid, p.workers, func(span time.Duration) float64 { return p.perSecond(callers, callBytes, span) })
	}
	const single, eight, four, rrSingle, rrEight = "1 caller, max_inflight 1", "8 callers, max_inflight 1",
		"8 callers, max_inflight 4", "1 caller, RoadRunner", "8 callers, RoadRunner"
	const bound = ", one core per worker"
	const equalBound = rrEight + " with equal work" + bound
	addRoadrunner(rrEight, callers, rr)
	addRoadrunner(rrEight+bound, callers, rrBound)
	addRoadrunner(equalBound, callers, rrEqual)
	body := bytes.Repeat([]byte("x"), callBytes)
	request := pool.Request{Method: "echo", Body: body, Priority: pool.DefaultPriority}
	for _, kind := range []struct{ inflight, coresEach int }{{1, 0}, {1, 1}, {4, 0}, {4, 1}} {
		sp := b.echoInflight(fmt.Sprintf("calls-%d-%d", kind.inflight, kind.coresEach), callWorkers, kind.inflight)
		sp.Limits.CPUAffinityEach = kind.coresEach
		echo := b.startPool(ctx, sp, startPolled)
		poll(ctx, startPolled, func(context.Context) (err error) {
			if free, _ := g.FreeSlots(echo.Name()); free < callWorkers*kind.inflight {
				err = fmt.Errorf("the gateway has %d of %d slots of pool %s", free, callWorkers*kind.inflight, echo.Name())
			}
			return err
		})
		pids := workersOf(ctx, echo)
		byPool := func(ctx context.Context, _ int) error { return checkEcho(body)(g.CallPool(ctx, echo.Name(), request)) }
		how := ""
		if kind.coresEach > 0 {
			how = bound
		}
		if kind.inflight > 1 {
			add(four+how, pids, callers, byPool)
			continue
		}
		add(eight+how, pids, callers, byPool)
		add(single+how, pids, 1, byPool)
		addRoadrunner(rrSingle+how, 1, map[int]*roadrunner{0: rr, 1: rrBound}[kind.coresEach])
	}
	b.timeCalls(ctx, func(ctx context.Context, _ int) error {
		return checkEcho(body)(g.CallPool(ctx, "calls-1-0", request))
	})
	leased, pids := b.leased(ctx, g, body)
	add("8 callers, max_inflight 4, client leases", pids, callers, leased)

	b.compare(sides, callWarm, callSpan)
	r.atMost(eight+", processor time in the agent", named[eight].ofGo.Median, 8, "µs")
	r.atMost(eight+", processor time in the workers", named[eight].ofPython.Median, 6, "µs")
	compared := func(name, ours, theirs string) *series { return r.ratio(name, named[ours].rate, named[theirs].rate) }
	for _, c := range []struct {
		ours, theirs  string
		target, bound float64 // 0 for none
	}{{eight, rrEight, 1.2, 0.9}, {four, rrEight, 1.5, 1.2}, {single, rrSingle, 1.05, 0}} {
		ratio := compared(c.ours+" ÷ RoadRunner", c.ours, c.theirs)
		r.atLeast(c.ours+", relative to RoadRunner", ratio.Median, c.target, "×")
		compared(c.ours+bound+" ÷ "+c.theirs, c.ours+bound, c.theirs)
		ratio = compared(c.ours+bound+" ÷ "+c.theirs+bound, c.ours+bound, c.theirs+bound)
		if c.bound > 0 {
			r.atLeast(c.ours+bound+", relative to RoadRunner"+bound, ratio.Median, c.bound, "×")
		}
	}
	ratio := compared(eight+bound+" ÷ "+equalBound, eight+bound, equalBound)
	r.atLeast(eight+bound+", relative to "+equalBound, ratio.Median, 1.2, "×")
	r.note("%d Python workers per side, echo of %d bytes; %s per side and round after a warm-up of %s", callWorkers,
		callBytes, callSpan, callWarm)
}

// timeCalls measures how long calls take with one, eight and 64 callers, each of which calls again at once.
func (b *bench) timeCalls(ctx context.Context, call func(context.Context, int) error) {
	numbers := []int{1, callers, 64}
	var rows [][2]*series
	for _, n := range numbers {
		name := fmt.Sprintf("time of a call, callers: %d, max_inflight 1, ", n)
		rows = append(rows, [2]*series{b.result.row(name+"p50", "µs"), b.result.row(name+"p99", "µs")})
	}
	b.inTurn(len(numbers), func(side int) {
		took := make([][]float64, numbers[side])
		perSecond(ctx, len(took), callSpan, func(ctx context.Context, caller int) (err error) {
			took[caller] = append(took[caller], 1000*timed(func() error { err = call(ctx, caller); return nil }))
			return err
		})
		all := slices.Sorted(slices.Values(slices.Concat(took...)))
		rows[side][0].add(all[len(all)/2])
		rows[side][1].add(all[len(all)*99/100])
	})
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
func (b *bench) leased(ctx context.Context, g *gateway.Gateway, body []byte) (call func(context.Context, int) error,
	pids []int) {
	echo := b.startPool(ctx, b.echoInflight("leased", callWorkers, 4), startPolled)
	leases := make([]*tempool.Lease, callWorkers)
	for i := range leases {
		leases[i] = must(echo.CheckoutOnce(ctx, i, tempool.CheckoutOptions{Holder: "bench", TTL: time.Hour}))
	}
	request := pool.Request{Method: "echo", Body: body}
	b.atEnd(func(ctx context.Context) (err error) {
		for _, lease := range leases {
			err = errors.Join(err, b.client.Checkin(ctx, api.CheckinRequest{LeaseID: lease.ID}))
		}
		return err
	})
	return func(ctx context.Context, caller int) error {
		return checkEcho(body)(g.Call(ctx, leases[caller%callWorkers].ID, request))
	}, workersOf(ctx, echo)
}

// roadrunner is RoadRunner's pool in a separate process, built from a separate module.
type roadrunner struct {
	requests *json.Encoder
	results  *json.Decoder
	context  string // of each call
	pid      int
	workers  []int // their processes
}

// startRoadrunner starts the pool with a program of its folder. callContext is what its calls carry beside their body;
// cores is 0 or the number of cores over which the workers are bound, one core each.
func (b *bench) startRoadrunner(ctx context.Context, worker, callContext string, cores int) *roadrunner {
	source := filepath.Join(b.root, "test", "bench", "roadrunner")
	program := filepath.Join(b.dir, "roadrunner")
	must(output(ctx, source, "go", "build", "-o", program, "."))
	cmd := exec.Command(program, strconv.Itoa(callWorkers), strconv.Itoa(cores), b.python, filepath.Join(source, worker))
	results, requests := must(cmd.StdoutPipe()), must(cmd.StdinPipe())
	b.launch("RoadRunner's pool", cmd, true, requests.Close)
	r := &roadrunner{json.NewEncoder(requests), json.NewDecoder(results), callContext, cmd.Process.Pid, nil}
	r.perSecond(callWorkers, 1, 0) // it answers when its workers are ready
	r.workers = childrenOf(ctx, r.pid)
	return r
}

// perSecond measures RoadRunner for a span and returns the calls per second.
func (r *roadrunner) perSecond(callers, bytes int, span time.Duration) float64 {
	check(r.requests.Encode(map[string]any{
		"callers": callers, "context": r.context, "bytes": bytes, "ms": span.Milliseconds(),
	}))
	var result struct {
		PerSecond float64 `json:"per_second"`
	}
	check(r.results.Decode(&result))
	return result.PerSecond
}
