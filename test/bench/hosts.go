package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/shirou/gopsutil/v3/process"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

const (
	hostsID = "hosts"
	// hostsStarted is the number of workers of each start that is compared with the floor.
	hostsStarted = 400
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
	listings        = 10 // of ctl ps

	startFactor       = 1.2 // of the floor
	startOperations   = 36.0
	startEvents       = 12.0
	idleCores         = 0.01
	idleActionsPerDay = 700.0
	psOf300Target     = 150.0 // ms
	restartSeconds    = 2.0   // beyond the start
)

// measureHosts compares the start of a pool with the floor, and measures what idle workers cost and how long an agent's
// restart takes.
func measureHosts(ctx context.Context, b *bench) error {
	if err := b.temporal(ctx); err != nil {
		return err
	}
	if _, err := b.start(roleNoop, "floor", true, b.server.Address()); err != nil {
		return err
	}
	program, err := b.trivialProgram(ctx)
	if err != nil {
		return err
	}
	h := &hosts{bench: b, program: program}
	capacity := []string{"--capacity", strconv.Itoa(hostsStarted)}
	agent, err := b.doomedAgent(ctx, hostsID, capacity...)
	if err != nil {
		return err
	}
	if err := wait(ctx, hostsSettle); err != nil {
		return err
	}
	if h.without, err = h.observeFor(ctx, agent.Process.Pid, hostsQuiet); err != nil {
		return err
	}
	if err := h.starts(ctx); err != nil {
		return err
	}
	began := time.Now()
	idle := trivial(program, "idle", hostsIdle)
	checkpoint := idle.Health.Checkpoint.D()
	idle.Health.Checkpoint = spec.Duration(hostsCheckpoint)
	if err := h.client.StartPool(ctx, api.PoolStart{Pool: idle.Pool.Name, Spec: idle}); err != nil {
		return err
	}
	pool := h.client.Pool(idle.Pool.Name) // restart stops it
	if err := awaitPool(ctx, pool, hostsIdle, hostsPoll); err != nil {
		return err
	}
	started := time.Since(began)
	if err := h.idle(ctx, agent.Process.Pid, pool.Name(), began, checkpoint); err != nil {
		return err
	}
	return h.restart(ctx, agent, pool, started, capacity...)
}

// hosts is one run of the benchmark.
type hosts struct {
	*bench
	program string
	without use // what the server and the agent use without workers
}

// use is what the server and an agent use in a second, and for how long that was observed.
type use struct {
	server, agent        float64 // cores
	actions, persistence float64
	took                 time.Duration
}

// starts alternates between the floor and the start of a pool.
func (h *hosts) starts(ctx context.Context) error {
	r := h.result
	floor := r.row(fmt.Sprintf("floor: %d child workflows with one activity each", hostsStarted), "s")
	floorOperations := r.row("floor: persistence for each child", "operations")
	processes := r.row(fmt.Sprintf("the same, each activity starts a bare process (%d)", hostsStarted), "s")
	pools := r.row(fmt.Sprintf("pool of %d, StartPool until all workers are ready", hostsStarted), "s")
	operations := r.row("persistence for each worker until ready", "operations")
	events := r.row("history events of a worker until ready, mean", "events")
	for round := range h.rounds {
		spent, _, err := h.spend(ctx, func() error {
			took, err := h.runFloor(ctx, hostsStarted, "")
			floor.add(took.Seconds())
			return err
		})
		if err != nil {
			return err
		}
		floorOperations.add(spent.persistence / hostsStarted)
		took, err := h.runFloor(ctx, hostsStarted, h.program)
		if err != nil {
			return err
		}
		processes.add(took.Seconds())
		err = h.within(ctx, func() error {
			name := fmt.Sprintf("hosts-%d", round)
			spent, _, err := h.spend(ctx, func() error {
				began := time.Now()
				_, err := h.startPoolWithin(ctx, trivial(h.program, name, hostsStarted), hostsPoll)
				pools.add(time.Since(began).Seconds())
				return err
			})
			if err != nil {
				return err
			}
			operations.add(spent.persistence / hostsStarted)
			var workers []string
			for slot := range hostsStarted {
				workers = append(workers, api.WorkerWorkflowID(name, slot))
			}
			written, err := h.costs(ctx, workers)
			events.add(written.events / hostsStarted)
			return err
		})
		if err != nil {
			return err
		}
	}
	ratio := ratios("start of a pool ÷ floor", pools, floor)
	r.Rows = append(r.Rows, ratio, ratios("start of a pool ÷ floor with bare processes", pools, processes))
	r.atMost(fmt.Sprintf("start of %d workers, in the floor's time", hostsStarted), ratio.Median, startFactor, "×")
	r.atMost("persistence operations for each start", operations.Median, startOperations, "operations")
	r.atMost("history events of a worker until ready", events.Median, startEvents, "events")
	return nil
}

// plus adds what samples take, which are times as many as in other, beyond the time without any.
func (u use) plus(other use, times float64) use {
	return use{
		server: u.server + (other.server-u.server)*times, agent: u.agent + (other.agent-u.agent)*times,
		actions: u.actions + (other.actions-u.actions)*times,
	}
}

// observe measures the server and an agent while do runs.
func (b *bench) observe(ctx context.Context, agent int, do func() error) (u use, err error) {
	var cores [2]float64
	read := func(sign float64) error {
		for i, pid := range []int{b.server.PID(), agent} {
			seconds, err := cpuSeconds(pid)
			if err != nil {
				return err
			}
			cores[i] += sign * seconds
		}
		return nil
	}
	if err := read(-1); err != nil {
		return u, err
	}
	spent, took, err := b.spend(ctx, do)
	if err == nil {
		err = read(+1)
	}
	seconds := took.Seconds()
	return use{cores[0] / seconds, cores[1] / seconds, spent.actions / seconds, spent.persistence / seconds, took}, err
}

// observeFor is observe while nothing is asked of the server and the agent.
func (h *hosts) observeFor(ctx context.Context, agent int, window time.Duration) (use, error) {
	return h.observe(ctx, agent, func() error { return wait(ctx, window) })
}

// idle measures the idle workers of a pool, whose start began at a time, against the same agent and server without
// them, at the given interval of samples; and ctl ps of it.
func (h *hosts) idle(ctx context.Context, agent int, pool string, began time.Time, checkpoint time.Duration) error {
	r := h.result
	if err := wait(ctx, hostsSettle); err != nil {
		return err
	}
	quiet, err := h.observeFor(ctx, agent, hostsQuiet)
	if err == nil {
		err = wait(ctx, time.Until(began.Add(hostsCheckpoint-hostsMargin)))
	}
	if err != nil {
		return err
	}
	sampled, err := h.observeFor(ctx, agent, hostsSampling)
	if err != nil {
		return err
	}
	with := quiet.plus(sampled, hostsSampling.Seconds()/checkpoint.Seconds())
	ps := r.row(fmt.Sprintf("ctl ps of %d workers", hostsIdle), "ms")
	for range listings {
		if err := h.list(ctx, pool, ps); err != nil {
			return err
		}
	}
	r.row("Temporal server with idle workers, without samples", "cores").add(quiet.server)
	r.row("agent with idle workers, without samples", "cores").add(quiet.agent)
	sample := hostsSampling.Seconds() / hostsIdle * 1000
	r.row("a sample, Temporal server", "ms of CPU").add((sampled.server - quiet.server) * sample)
	r.row("a sample, agent", "ms of CPU").add((sampled.agent - quiet.agent) * sample)
	r.row("Temporal server without workers", "cores").add(h.without.server)
	r.row("agent without workers", "cores").add(h.without.agent)
	perDay := (with.actions - h.without.actions) * day.Seconds() / hostsIdle
	r.row("actions of an idle worker in a day", "actions").add(perDay)
	r.atMost(fmt.Sprintf("%d idle workers, Temporal server", hostsIdle), with.server-h.without.server, idleCores, "cores")
	r.atMost(fmt.Sprintf("%d idle workers, agent", hostsIdle), with.agent-h.without.agent, idleCores, "cores")
	r.atMost("actions of an idle worker in a day", perDay, idleActionsPerDay, "actions")
	r.atMost(fmt.Sprintf("ctl ps of %d workers, median", hostsIdle), ps.Median, psOf300Target, "ms")
	return nil
}

// restart kills the agent and waits until the workers are ready on the next agent of the same host.
func (h *hosts) restart(ctx context.Context, agent *exec.Cmd, pool *tempool.Pool, started time.Duration,
	args ...string) error {
	if err := agent.Process.Kill(); err != nil {
		return fmt.Errorf("kill the agent: %w", err)
	}
	if _, err := agent.Process.Wait(); err != nil {
		return fmt.Errorf("wait for the end of the agent: %w", err)
	}
	began := time.Now()
	if _, err := h.agent(ctx, hostsID, args...); err != nil {
		return err
	}
	h.atEnd(func(ctx context.Context) error { return stopPool(ctx, pool) }) // before the agent that has its workers
	again := func(worker api.RosterEntry) bool { return worker.Incarnation > 1 }
	if err := awaitWorkers(ctx, pool, hostsIdle, waitTimeout, hostsPoll/5, again); err != nil {
		return err
	}
	took := time.Since(began)
	h.result.row(fmt.Sprintf("start of %d workers", hostsIdle), "s").add(started.Seconds())
	h.result.row(fmt.Sprintf("restart of a killed agent until its %d workers are ready", hostsIdle),
		"s").add(took.Seconds())
	h.result.atMost("restart of a killed agent until its workers are ready, beyond their start",
		took.Seconds()-started.Seconds(), restartSeconds, "s")
	return nil
}

// trivial returns the spec of a pool of a program that starts at once.
func trivial(program, name string, size int) spec.Spec {
	s := spec.Default()
	s.Pool.Name, s.Pool.Size, s.Pool.Command = name, size, []string{program}
	return s
}

// trivialProgram builds a worker that does next to nothing at its start.
func (b *bench) trivialProgram(ctx context.Context) (string, error) {
	program := filepath.Join(b.dir, "echo")
	_, err := output(ctx, b.root, "go", "build", "-o", program, "./test/bench/echo")
	return program, err
}

// cpuSeconds returns the processor time that a process has used.
func cpuSeconds(pid int) (float64, error) {
	p, err := process.NewProcess(int32(pid))
	if err != nil {
		return 0, fmt.Errorf("find process %d: %w", pid, err)
	}
	times, err := p.Times()
	if err != nil {
		return 0, fmt.Errorf("read the times of process %d: %w", pid, err)
	}
	return times.User + times.System, nil
}

// list runs ctl ps as a program of its own.
func (b *bench) list(ctx context.Context, pool string, row *series) error {
	began := time.Now()
	if err := b.ctl(ctx, "ps", pool); err != nil {
		return err
	}
	row.add(milliseconds(time.Since(began)))
	return nil
}
