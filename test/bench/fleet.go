package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/shirou/gopsutil/v3/process"
	"golang.org/x/sync/errgroup"

	"github.com/tempool/tempool/spec"
)

const (
	fleetSize = 100
	// fleetPoll is the polling interval for the readiness of a pool.
	fleetPoll = 20 * time.Millisecond

	fleetFactor = 1.3
	fleetExtra  = 2.0 // seconds

	agentMemoryTarget = 120.0 // MB
	eachMemoryTarget  = 200.0 // KB
)

// measureFleet compares the start of a pool of 100 workers with starting the same program 100 times.
func measureFleet(ctx context.Context, b *bench) error {
	agent, err := b.agent(ctx, "fleet", "--capacity", strconv.Itoa(2*fleetSize))
	if err != nil {
		return err
	}
	r := b.result
	bare := r.row(fmt.Sprintf("%d bare processes, %d at a time", fleetSize, runtime.NumCPU()), "s")
	pool := r.row(fmt.Sprintf("pool of %d, StartPool until all workers are ready", fleetSize), "s")
	memory := r.row(fmt.Sprintf("agent RSS with %d workers", fleetSize), "MB")
	first := r.row("agent RSS with 1 worker", "MB")

	if _, err := b.startPool(ctx, b.echo("first", 1)); err != nil { // warms the agent up
		return err
	}
	one, err := residentMB(agent.Process.Pid)
	if err != nil {
		return err
	}
	first.add(one)
	for round := range b.rounds {
		took, err := spawnBareFleet(ctx, b.echo("bare", fleetSize))
		if err != nil {
			return err
		}
		bare.add(took.Seconds())
		if err := b.startFleet(ctx, fmt.Sprintf("fleet-%d", round), agent, pool, memory); err != nil {
			return err
		}
	}
	beyond := &series{Name: "pool beyond 1.3 × bare processes", Unit: "s"}
	for i := range pool.Values {
		beyond.add(pool.Values[i] - fleetFactor*bare.Values[i])
	}
	r.Rows = append(r.Rows, beyond)
	r.atMost(fmt.Sprintf("pool of %d ready, beyond 1.3 × bare processes", fleetSize), beyond.Median, fleetExtra, "s")
	// In the first round the agent is fresh; in the last one, many workers have ended. The target applies to both.
	fresh, last := memory.Values[0], memory.Values[len(memory.Values)-1]
	r.atMost(fmt.Sprintf("agent RSS with %d workers, fresh agent", fleetSize), fresh, agentMemoryTarget, "MB")
	r.atMost("agent RSS per additional worker", (fresh-one)*1000/fleetSize, eachMemoryTarget, "KB")
	if ended := fleetSize * (b.rounds - 1); ended > 0 {
		r.atMost(fmt.Sprintf("agent RSS with %d workers, after %d have ended", fleetSize, ended), last, agentMemoryTarget,
			"MB")
		r.row("agent RSS per ended worker", "KB").add((last - fresh) * 1000 / float64(ended))
	}
	return nil
}

// startFleet starts a pool, measures the time and the agent's memory, and stops the pool.
func (b *bench) startFleet(ctx context.Context, name string, agent *exec.Cmd, pool, memory *series) error {
	s := b.echo(name, fleetSize)
	began := time.Now()
	return b.within(ctx, func() error {
		if _, err := b.startPoolWithin(ctx, s, fleetPoll); err != nil {
			return err
		}
		pool.add(time.Since(began).Seconds())
		megabytes, err := residentMB(agent.Process.Pid)
		if err == nil {
			memory.add(megabytes)
		}
		return err
	})
}

// spawnBareFleet measures the start of bare processes, one per core at a time, which is also an agent's default.
func spawnBareFleet(ctx context.Context, s spec.Spec) (time.Duration, error) {
	fleet := make([]*bareWorker, s.Pool.Size)
	var group errgroup.Group
	group.SetLimit(runtime.NumCPU())
	began := time.Now()
	for i := range fleet {
		group.Go(func() (err error) {
			fleet[i], err = spawnBare(ctx, s)
			return err
		})
	}
	err := group.Wait()
	took := time.Since(began)
	for _, h := range fleet {
		if h != nil {
			h.kill()
		}
	}
	return took, err
}

// residentMB returns the RSS of a process in MB.
func residentMB(pid int) (float64, error) {
	p, err := process.NewProcess(int32(pid))
	if err != nil {
		return 0, fmt.Errorf("find process %d: %w", pid, err)
	}
	info, err := p.MemoryInfo()
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return float64(info.RSS) / 1e6, nil
}
