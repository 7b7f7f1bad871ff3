package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

const (
	hostsID = "hosts"
	// hostsStarted is the number of workers of each start that is compared with the floor, and hostsBare of each that is
	// compared with the same Python programs alone.
	hostsStarted = 400
	hostsBare    = 100
	// hostsIdle is the number of workers whose idle cost is measured. In hostsSettle the server finishes their start, and
	// the workers count as healthy (recovery.healthy_reset). The cost without samples is that of hostsQuiet; then,
	// hostsCheckpoint after their start, all are sampled, which hostsSampling covers with hostsMargin before. So a sample
	// is known, and with it the cost at the default health.checkpoint.
	hostsIdle       = 300
	hostsSettle     = 75 * time.Second
	hostsQuiet      = 150 * time.Second
	hostsCheckpoint = 5 * time.Minute
	hostsSampling   = 90 * time.Second
	hostsMargin     = 10 * time.Second
	hostsPoll       = 500 * time.Millisecond
	barePoll        = 20 * time.Millisecond
	listings        = 10 // of tempool ps

	startFactor       = 1.2 // of the floor
	bareFactor        = 1.3 // of the programs alone
	bareExtra         = 2.0 // seconds
	agentMemory       = 120.0
	eachMemory        = 200.0 // KB
	startOperations   = 36.0
	startEvents       = 12.0
	idleCores         = 0.01
	idleActionsPerDay = 700.0
	psTarget          = 150.0 // ms
	restartSeconds    = 2.0   // beyond the start
)

// hosts is one run of the benchmark.
type hosts struct {
	*bench
	program string // a worker that does next to nothing at its start
	agent   *exec.Cmd
}

// measureHosts compares the start of a pool with the floor and with bare processes, and measures what idle workers cost
// and how long an agent's restart takes.
func measureHosts(ctx context.Context, b *bench) {
	b.startNoopWorker()
	h := &hosts{bench: b, program: b.build(ctx, "./test/bench/echo")}
	capacity := []string{"--capacity", strconv.Itoa(hostsStarted)}
	h.agent = b.agent(hostsID, true, capacity...)
	wait(ctx, hostsSettle)
	without := h.observe(ctx, hostsQuiet)
	h.bareStarts(ctx)
	h.starts(ctx)

	idle := trivial(h.program, "idle", hostsIdle)
	checkpoint := idle.Health.Checkpoint.D()
	idle.Health.Checkpoint = spec.Duration(hostsCheckpoint)
	began := time.Now()
	check(h.client.StartPool(ctx, api.PoolStart{Pool: idle.Pool.Name, Spec: idle}))
	pool := h.client.Pool(idle.Pool.Name)
	awaitWorkers(ctx, pool, hostsIdle, 1, hostsPoll)
	started := time.Since(began).Seconds()
	h.idle(ctx, without, began, checkpoint)
	h.restart(ctx, pool, started, capacity)
}

// bareStarts alternates between Python programs alone and the start of a pool of them, and measures the agent's memory.
func (h *hosts) bareStarts(ctx context.Context) {
	r := h.result
	bare := r.row(fmt.Sprintf("%d bare Python processes, one per core at a time", hostsBare), "s")
	pool := r.row(fmt.Sprintf("pool of %d Python workers, StartPool until all are ready", hostsBare), "s")
	memory := r.row(fmt.Sprintf("agent RSS with %d workers", hostsBare), "MB")
	beyond := r.row("pool beyond 1.3 × bare", "s")
	h.startPool(ctx, h.echo("first", 1), barePoll) // warms the agent up
	one := residentMB(h.agent.Process.Pid)
	for round := range h.rounds {
		alone := timeBare(ctx, h.echo("bare", hostsBare)) / 1000
		h.within(ctx, func() {
			began := time.Now()
			h.startPool(ctx, h.echo(fmt.Sprintf("python-%d", round), hostsBare), barePoll)
			took := time.Since(began).Seconds()
			bare.add(alone)
			pool.add(took)
			beyond.add(took - bareFactor*alone)
			memory.add(residentMB(h.agent.Process.Pid))
		})
	}
	fresh := memory.Values[0] // later, workers have ended as well
	r.atMost(fmt.Sprintf("pool of %d ready, beyond 1.3 × bare processes", hostsBare), beyond.Median, bareExtra, "s")
	r.atMost(fmt.Sprintf("agent RSS with %d workers, at most", hostsBare), memory.Max, agentMemory, "MB")
	r.atMost("agent RSS per additional worker", (fresh-one)*1000/hostsBare, eachMemory, "KB")
}

// starts alternates between the floor and the start of a pool.
func (h *hosts) starts(ctx context.Context) {
	r := h.result
	floor := r.row(fmt.Sprintf("floor: %d child workflows with one activity each", hostsStarted), "s")
	floorOperations := r.row("floor: persistence for each child", "operations")
	pools := r.row(fmt.Sprintf("pool of %d, StartPool until all workers are ready", hostsStarted), "s")
	operations := r.row("persistence for each worker until ready", "operations")
	events := r.row("history events of a worker until ready, mean", "events")
	for round := range h.rounds {
		spent, _ := h.spend(ctx, func() { floor.add(h.runFloor(ctx, hostsStarted).Seconds()) })
		floorOperations.add(spent.persistence / hostsStarted)
		h.within(ctx, func() {
			name := fmt.Sprintf("hosts-%d", round)
			spent, _ := h.spend(ctx, func() {
				began := time.Now()
				h.startPool(ctx, trivial(h.program, name, hostsStarted), hostsPoll)
				pools.add(time.Since(began).Seconds())
			})
			operations.add(spent.persistence / hostsStarted)
			events.add(h.costs(ctx, workflowsOf(name, hostsStarted)[1:]...).events / hostsStarted)
		})
	}
	ratio := r.ratio("start of a pool ÷ floor", pools, floor)
	r.atMost(fmt.Sprintf("start of %d workers, in the floor's time", hostsStarted), ratio.Median, startFactor, "×")
	r.atMost("persistence operations for each start", operations.Median, startOperations, "operations")
	r.atMost("history events of a worker until ready", events.Median, startEvents, "events")
}

// use is what the server and an agent use in a second.
type use struct{ server, agent, actions float64 } // the first two in cores

// observe measures the server and the agent for a window, while nothing is asked of them.
func (h *hosts) observe(ctx context.Context, window time.Duration) use {
	server, agent := cpuSeconds(h.server.PID()), cpuSeconds(h.agent.Process.Pid)
	spent, took := h.spend(ctx, func() { wait(ctx, window) })
	server, agent = cpuSeconds(h.server.PID())-server, cpuSeconds(h.agent.Process.Pid)-agent
	return use{server / took.Seconds(), agent / took.Seconds(), spent.actions / took.Seconds()}
}

// idle measures the idle workers, whose start began at a time, against the same agent and server without them, at the
// given interval of samples; and tempool ps of them.
func (h *hosts) idle(ctx context.Context, without use, began time.Time, checkpoint time.Duration) {
	r := h.result
	wait(ctx, hostsSettle)
	quiet := h.observe(ctx, hostsQuiet)
	wait(ctx, time.Until(began.Add(hostsCheckpoint-hostsMargin)))
	sampled := h.observe(ctx, hostsSampling)
	// What samples take, which are fewer at the default checkpoint, beyond the time without any.
	part := hostsSampling.Seconds() / checkpoint.Seconds()
	with := func(quiet, sampled float64) float64 { return quiet + (sampled-quiet)*part }
	ps := r.row(fmt.Sprintf("tempool ps of %d workers", hostsIdle), "ms")
	for range listings {
		list := exec.Command(h.tempool, "--address", h.server.Address(), "ps", "idle")
		var stderr bytes.Buffer
		list.Stderr = &stderr
		ps.add(timed(func() error {
			if err := list.Run(); err != nil {
				return fmt.Errorf("tempool ps: %w: %s", err, stderr.String())
			}
			return nil
		}))
	}
	r.row("Temporal server with idle workers, without samples", "cores").add(quiet.server)
	r.row("agent with idle workers, without samples", "cores").add(quiet.agent)
	sample := hostsSampling.Seconds() / hostsIdle * 1000
	r.row("a sample, Temporal server", "ms of CPU").add((sampled.server - quiet.server) * sample)
	r.row("a sample, agent", "ms of CPU").add((sampled.agent - quiet.agent) * sample)
	r.row("Temporal server without workers", "cores").add(without.server)
	r.row("agent without workers", "cores").add(without.agent)
	perDay := (with(quiet.actions, sampled.actions) - without.actions) * day.Seconds() / hostsIdle
	server, agent := with(quiet.server, sampled.server)-without.server, with(quiet.agent, sampled.agent)-without.agent
	r.row("actions of an idle worker in a day", "actions").add(perDay)
	r.atMost(fmt.Sprintf("%d idle workers, Temporal server", hostsIdle), server, idleCores, "cores")
	r.atMost(fmt.Sprintf("%d idle workers, agent", hostsIdle), agent, idleCores, "cores")
	r.atMost("actions of an idle worker in a day", perDay, idleActionsPerDay, "actions")
	r.atMost(fmt.Sprintf("tempool ps of %d workers, median", hostsIdle), ps.Median, psTarget, "ms")
}

// restart kills the agent and waits until the workers are ready on the next agent of the same host. Their start took so
// many seconds.
func (h *hosts) restart(ctx context.Context, pool *tempool.Pool, started float64, args []string) {
	check(h.agent.Process.Kill())
	must(h.agent.Process.Wait())
	began := time.Now()
	h.bench.agent(hostsID, false, args...)
	h.atEnd(func(ctx context.Context) error { return stopPool(ctx, pool) }) // before the agent that has its workers
	awaitWorkers(ctx, pool, hostsIdle, 2, hostsPoll/5)
	took := time.Since(began).Seconds()
	h.result.row(fmt.Sprintf("start of %d workers", hostsIdle), "s").add(started)
	h.result.row(fmt.Sprintf("restart of a killed agent until its %d workers are ready", hostsIdle), "s").add(took)
	h.result.atMost("restart of a killed agent until its workers are ready, beyond their start", took-started,
		restartSeconds, "s")
}
