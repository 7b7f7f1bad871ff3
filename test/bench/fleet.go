package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v3/process"

	"github.com/tempool/tempool/spec"
)

const (
	fleetSize = 100
	// fleetPoll is the pause between two questions whether all are ready.
	fleetPoll = 20 * time.Millisecond

	fleetFactor = 1.3
	fleetExtra  = 2.0 // seconds

	agentMemoryTarget = 120.0 // MB
	eachMemoryTarget  = 200.0 // KB
)

// measureFleet starts a pool of a hundred, and a hundred of the same program by hand as many at a time.
func measureFleet(ctx context.Context, b *bench) (err error) {
	agent, err := b.agent(ctx, "fleet", "--capacity", strconv.Itoa(2*fleetSize))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agent.stop()) }()
	r := b.result
	byHand := r.row(fmt.Sprintf("%d spawned by hand, %d at a time", fleetSize, runtime.NumCPU()), "s")
	pool := r.row(fmt.Sprintf("pool of %d, from StartPool until all are ready", fleetSize), "s")
	memory := r.row(fmt.Sprintf("agent's resident memory with %d workers, after ever more have ended", fleetSize), "MB")
	first := r.row("agent's resident memory with 1 worker", "MB")

	alone, err := b.startPool(ctx, b.echo("first", 1)) // a first worker has the agent settle
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopPool(context.WithoutCancel(ctx), alone)) }()
	one, err := residentMB(agent.cmd.Process.Pid)
	if err != nil {
		return err
	}
	first.add(one)
	for round := range b.rounds {
		took, err := spawnFleet(ctx, b.echo("byhand", fleetSize))
		if err != nil {
			return err
		}
		byHand.add(took.Seconds())
		if err := b.startFleet(ctx, fmt.Sprintf("fleet-%d", round), agent, pool, memory); err != nil {
			return err
		}
	}
	beyond := &series{Name: "pool's time beyond 1.3 × by hand", Unit: "s"}
	for i := range pool.Values {
		beyond.add(pool.Values[i] - fleetFactor*byHand.Values[i])
	}
	r.Rows = append(r.Rows, beyond)
	r.atMost(fmt.Sprintf("pool of %d ready, beyond 1.3 × by hand", fleetSize), beyond.Median, fleetExtra, "s")
	// Only the first pool has an agent without a past; the target holds for the others, too.
	fresh, last := memory.Values[0], memory.Values[len(memory.Values)-1]
	r.atMost(fmt.Sprintf("agent's memory with %d workers, freshly started", fleetSize), fresh, agentMemoryTarget, "MB")
	r.atMost("agent's memory for each further worker", (fresh-one)*1000/fleetSize, eachMemoryTarget, "KB")
	if ended := fleetSize * (b.rounds - 1); ended > 0 {
		r.atMost(fmt.Sprintf("agent's memory with %d workers, after %d have ended", fleetSize, ended), last, agentMemoryTarget, "MB")
		r.row("agent's memory for each worker that has ended", "KB").add((last - fresh) * 1000 / float64(ended))
	}
	return nil
}

// startFleet starts a pool, looks at the agent, and takes the pool down again.
func (b *bench) startFleet(ctx context.Context, name string, agent *actor, pool, memory *series) error {
	s := b.echo(name, fleetSize)
	began := time.Now()
	p, err := b.startPoolWithin(ctx, s, fleetPoll)
	if err != nil {
		return err
	}
	pool.add(time.Since(began).Seconds())
	megabytes, err := residentMB(agent.cmd.Process.Pid)
	if err == nil {
		memory.add(megabytes)
	}
	return errors.Join(err, stopPool(context.WithoutCancel(ctx), p))
}

// spawnFleet times a fleet spawned by hand, as many at a time as the machine has cores, which is an agent's default, too.
func spawnFleet(ctx context.Context, s spec.Spec) (time.Duration, error) {
	fleet := make([]*handmade, s.Pool.Size)
	failures := make([]error, s.Pool.Size)
	room := make(chan struct{}, runtime.NumCPU())
	var group sync.WaitGroup
	began := time.Now()
	for i := range fleet {
		room <- struct{}{}
		group.Go(func() {
			defer func() { <-room }()
			fleet[i], failures[i] = spawnByHand(ctx, s)
		})
	}
	group.Wait()
	took := time.Since(began)
	for _, h := range fleet {
		if h != nil {
			h.kill()
		}
	}
	return took, errors.Join(failures...)
}

// residentMB is what a process has in memory, in millions of bytes.
func residentMB(pid int) (float64, error) {
	p, err := process.NewProcess(int32(pid))
	if err != nil {
		return 0, fmt.Errorf("look at process %d: %w", pid, err)
	}
	info, err := p.MemoryInfo()
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return float64(info.RSS) / 1e6, nil
}
