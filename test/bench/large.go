package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shirou/gopsutil/v3/process"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

const (
	largeCallers = 16
	// largePause is between two calls of a caller: the benchmark measures the control plane of a pool that works, not how fast it works.
	largePause = 50 * time.Millisecond
	// largeTimeout limits the start of a large pool, and its return after the loss of its host.
	largeTimeout = 20 * time.Minute
	largePoll    = 500 * time.Millisecond
	listings     = 10 // of ctl ps

	psTarget   = 300.0 // ms
	lossFactor = 1.5   // of the pool's start
)

// measureLarge starts a large pool on one agent, calls it for a while, and kills the agent: the workers have to come back on another one.
func measureLarge(ctx context.Context, b *bench) error {
	program, err := b.trivialProgram(ctx)
	if err != nil {
		return err
	}
	l := &large{bench: b, spec: trivial(program, "large", b.largeSize)}
	capacity := []string{"--capacity", strconv.Itoa(b.largeSize)}
	if err := b.temporal(ctx); err != nil {
		return err
	}
	first, err := b.doomedAgent(ctx, "large-a", capacity...)
	if err != nil {
		return err
	}
	started, err := l.start(ctx)
	if err != nil {
		return err
	}
	second, err := b.agent(ctx, "large-b", capacity...)
	if err != nil {
		return err
	}
	l.atEnd(func(ctx context.Context) error { return stopPool(ctx, l.pool) }) // before the agent that has its workers
	stop := l.call(ctx)
	defer stop()
	if err := l.steady(ctx, first); err != nil {
		return err
	}
	return l.loss(ctx, first, second, started)
}

// large is one run of the benchmark.
type large struct {
	*bench
	spec            spec.Spec
	pool            *tempool.Pool
	answers, failed atomic.Int64
}

func (l *large) start(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	if err := l.client.StartPool(ctx, api.PoolStart{Pool: l.spec.Pool.Name, Spec: l.spec}); err != nil {
		return 0, err
	}
	l.pool = l.client.Pool(l.spec.Pool.Name)
	if err := l.awaitOn(ctx, "large-a"); err != nil {
		return 0, err
	}
	took := time.Since(began)
	l.result.row(fmt.Sprintf("StartPool until all %d workers are ready", l.spec.Pool.Size), "s").add(took.Seconds())
	return took, nil
}

// awaitOn polls the roster until all workers are ready on a host.
func (l *large) awaitOn(ctx context.Context, host string) error {
	return awaitWorkers(ctx, l.pool, l.spec.Pool.Size, largeTimeout, largePoll, func(worker api.RosterEntry) bool { return worker.Host == host })
}

// call calls the pool until stop is called.
func (l *large) call(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	for range largeCallers {
		group.Go(func() {
			for wait(ctx, largePause) == nil {
				var answer int
				if err := l.pool.Call(ctx, "echo", 7, &answer); err == nil && answer == 7 {
					l.answers.Add(1)
				} else if ctx.Err() == nil {
					l.failed.Add(1)
				}
			}
		})
	}
	return func() {
		cancel()
		group.Wait()
	}
}

// steady observes the pool while it is called.
func (l *large) steady(ctx context.Context, agent *exec.Cmd) error {
	r := l.result
	answers, failed := l.answers.Load(), l.failed.Load()
	ps := r.row("ctl ps", "ms")
	used, err := l.observe(ctx, agent.Process.Pid, func() error {
		for range listings {
			if err := wait(ctx, l.largeFor/listings); err != nil {
				return err
			}
			if err := l.list(ctx, l.spec.Pool.Name, ps); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, one := range []struct {
		name  string
		pid   int
		cores float64
	}{{"Temporal server", l.server.PID(), used.server}, {"agent", agent.Process.Pid, used.agent}} {
		memory, err := residentMB(one.pid)
		if err != nil {
			return err
		}
		r.row(one.name+": CPU", "cores").add(one.cores)
		r.row(one.name+": RSS", "MB").add(memory)
	}
	r.row("actions", "1/s").add(used.actions)
	r.row("persistence", "operations/s").add(used.persistence)
	r.row("calls", "1/s").add(float64(l.answers.Load()-answers) / used.took.Seconds())
	r.atMost(fmt.Sprintf("ctl ps of %d workers, median", l.spec.Pool.Size), ps.Median, psTarget, "ms")
	r.atMost(fmt.Sprintf("failed calls in %s", l.largeFor), float64(l.failed.Load()-failed), 0, "calls")
	return nil
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

// loss kills the agent and waits until all workers are ready on the other one.
func (l *large) loss(ctx context.Context, doomed, other *exec.Cmd, started time.Duration) error {
	r := l.result
	failed := l.failed.Load()
	if err := doomed.Process.Kill(); err != nil {
		return fmt.Errorf("kill the agent: %w", err)
	}
	began := time.Now()
	if err := l.awaitOn(ctx, "large-b"); err != nil {
		return err
	}
	took := time.Since(began)
	r.row(fmt.Sprintf("SIGKILL of the agent until all %d workers are ready on another", l.spec.Pool.Size), "s").add(took.Seconds())
	r.row("calls that failed until then", "calls").add(float64(l.failed.Load() - failed))
	ps := r.row("ctl ps afterwards", "ms")
	answers := l.answers.Load()
	for range listings {
		if err := l.list(ctx, l.spec.Pool.Name, ps); err != nil {
			return err
		}
	}
	for l.answers.Load() == answers {
		if err := wait(ctx, largePause); err != nil {
			return err
		}
	}
	memory, err := residentMB(other.Process.Pid)
	if err != nil {
		return err
	}
	r.row("other agent: RSS", "MB").add(memory)
	limit := (api.HostHeartbeatTimeout + api.HostGrace).Seconds() + lossFactor*started.Seconds()
	r.atMost("all workers ready on another host, time-out of the host and 1.5 × the start", took.Seconds(), limit, "s")
	return nil
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
