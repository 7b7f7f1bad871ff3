package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	gopsutil "github.com/shirou/gopsutil/v3/process"

	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker"
)

const (
	usesInRound = 50
	useWorkers  = 4
	modelMB     = 500
)

// sized is the spec of a pool of forks of sized.py.
func (b *bench) sized(name string, size, ballastMB int, load time.Duration, by string) spec.Spec {
	s := b.echo(name, size)
	s.Pool.Command[1] = "sized.py"
	s.Pool.Env["BALLAST"], s.Pool.Env["LOAD"] = strconv.Itoa(ballastMB), fmt.Sprint(load.Seconds())
	s.Pool.Env["BENCH"] = name
	s.Start.Fork, s.Isolation.By = true, by
	s.Recovery.HealthyReset, s.Recovery.MaxConsecutiveFailures = spec.Duration(healthyReset), 1_000_000
	s.Health.Checkpoint = spec.Duration(24 * time.Hour) // it would write events of its own
	return s
}

// measureIsolation measures clean processes and forks.
func measureIsolation(ctx context.Context, b *bench) {
	agent := b.localAgent(ctx, "isolation")
	use := func(name string) error {
		_, err := agent.Gateway().CallPool(ctx, name, pool.Request{Method: "pid", Body: []byte("[]")})
		return err
	}
	b.within(ctx, func() { measureClean(ctx, b, agent, use) })
	b.within(ctx, func() { measureForkCrash(ctx, b) })
	b.within(ctx, func() {
		b.startPool(ctx, b.sized("eight", 8, modelMB, 0, spec.IsolateNone), startPolled)
		pss := 0.0
		for _, pid := range processesOf("eight") {
			pss += pssMB(pid)
		}
		b.result.atMost(fmt.Sprintf("8 workers of a model of %d MB, with their template, PSS", modelMB), pss,
			1.3*modelMB+8*30, "MB")
	})
	b.within(ctx, func() { measureUses(ctx, b, use) })
}

// measureClean takes the time from the answer of a use until its worker takes the next one.
func measureClean(ctx context.Context, b *bench, agent *worker.Agent, use func(string) error) {
	sizes := []struct {
		name   string
		mb     int
		target float64 // ms
	}{{"small", 0, 5}, {"large", modelMB, 15}}
	var rows, floors []*series
	for _, s := range sizes {
		b.startPool(ctx, b.sized(s.name, 1, s.mb, 0, spec.IsolateUse), startPolled)
		rows = append(rows, b.result.row(fmt.Sprintf("use to clean process, template with %d MB more", s.mb), "ms"))
		floors = append(floors, b.result.row(fmt.Sprintf("bare fork until the child has written, %d MB", s.mb), "ms"))
	}
	b.inTurn(len(sizes), func(side int) {
		took := must(output(ctx, b.dir, b.python, "workers/fork.py", strconv.Itoa(sizes[side].mb)))
		floors[side].add(must(strconv.ParseFloat(took, 64)))
		for range usesInRound {
			check(use(sizes[side].name))
			rows[side].add(timed(func() error {
				for {
					free, changed := agent.Gateway().FreeSlots(sizes[side].name)
					if free > 0 {
						return nil
					}
					select {
					case <-changed:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}))
		}
	})
	for i, s := range sizes {
		b.result.atMost("use to clean process, "+s.name+", p50", rows[i].Median, s.target, "ms")
		b.result.atMost("use to clean process, "+s.name+", p99", quantile(slices.Sorted(slices.Values(rows[i].Values)), 0.99),
			4*s.target, "ms")
	}
}

// measureForkCrash kills an idle worker whose program takes 4 s to load.
func measureForkCrash(ctx context.Context, b *bench) {
	p := b.startPool(ctx, b.sized("slow", 1, 0, 4*time.Second, spec.IsolateNone), startPolled)
	back := b.result.row("SIGKILL to ready, a fork of a program that loads for 4 s", "ms")
	for range b.rounds {
		wait(ctx, healthyReset+100*time.Millisecond)
		before := must(p.State(ctx, 0))
		killed := time.Now()
		check(syscall.Kill(before.PID, syscall.SIGKILL))
		awaitWorker(ctx, p, before.Incarnation+1)
		back.add(milliseconds(time.Since(killed)))
	}
	b.result.atMost("SIGKILL to ready, fork", back.Median, 60, "ms")
}

// measureUses alternates calls that each get a clean process with bare runs of the interpreter; then processes are
// killed during the uses, and what is left behind is counted.
func measureUses(ctx context.Context, b *bench, use func(string) error) {
	s := b.sized("uses", useWorkers, 0, 0, spec.IsolateUse)
	b.startPool(ctx, s, startPolled)
	workflows := workflowsOf("uses", useWorkers)
	var uses atomic.Int64
	call := func(context.Context, int) error { uses.Add(1); return use("uses") }
	perSecond(ctx, 2*useWorkers, time.Second, call)
	bare := b.result.row("subprocess.run of the interpreter with the same imports", "/s")
	calls := b.result.row("calls, each in a process of its own", "/s")
	before, from := b.costs(ctx, workflows...), uses.Load()
	span := 5 * time.Second
	b.inTurn(2, func(side int) {
		if side == 0 {
			script := fmt.Sprintf(`import subprocess, sys, time
runs, end = 0, time.monotonic() + %v
while time.monotonic() < end:
    subprocess.run([sys.executable, "-c", "import json, os, socket, time, tempool"], check=True)
    runs += 1
print(runs)`, span.Seconds())
			bare.add(float64(must(strconv.Atoi(must(output(ctx, filepath.Join(b.root, "sdk", "python"), b.python, "-c",
				script))))) / span.Seconds())
		} else {
			calls.add(perSecond(ctx, 2*useWorkers, span, call))
		}
	})
	for uses.Load()-from < b.uses {
		perSecond(ctx, 2*useWorkers, time.Second, call)
	}
	b.result.atLeast("uses a second", calls.Median, 150, "/s")
	ratio := b.result.ratio("uses ÷ subprocess.run", calls, bare)
	b.result.atLeast("uses, relative to subprocess.run", ratio.Median, 10, "×")
	b.result.atMost(fmt.Sprintf("events of %d uses in the histories of workers and pool", uses.Load()-from),
		b.costs(ctx, workflows...).minus(before).events, 0, "")

	settled := func() (left int) { // once no process is being made; the template has one forked ahead
		for range 100 {
			if left = len(processesOf("uses")) - useWorkers - 2; left == 0 {
				break
			}
			wait(ctx, 100*time.Millisecond)
		}
		return left
	}
	settled()
	byAge := func(a, b int) int { return cmp.Compare(startOf(a), startOf(b)) }
	template := slices.MinFunc(processesOf("uses"), byAge)
	memory, files := residentMB(template), openFiles()
	from, killed := uses.Load(), 0
	done := sleep.Done(func() {
		for uses.Load()-from < b.uses && ctx.Err() == nil {
			_ = perSecond(ctx, 2*useWorkers, time.Second, func(ctx context.Context, caller int) error {
				_ = call(ctx, caller) // its process may be killed
				return nil
			})
		}
	})
	for !sleep.Ended(done) {
		all := slices.SortedFunc(slices.Values(processesOf("uses")), byAge)
		// The oldest is the template, or the one in its place: without any, no process starts.
		if len(all) > 1 && syscall.Kill(all[1+rand.N(len(all)-1)], syscall.SIGKILL) == nil {
			killed++
		}
		sleep.For(done, time.Second)
	}
	awaitWorkers(ctx, b.client.Pool("uses"), useWorkers, 1, startPolled)
	b.result.atMost(fmt.Sprintf("processes left over after %d uses with %d kills", uses.Load()-from, killed),
		float64(settled()), 0, "")
	b.result.atMost("descriptors of the agent more than before", float64(openFiles()-files), 0, "")
	if must(gopsutil.PidExists(int32(template))) {
		b.result.atMost("growth of the template", residentMB(template)-memory, 1, "MB")
	} else {
		b.result.note("the template was replaced")
	}
}

// processesOf are the processes of a pool and its template, by their environment.
func processesOf(name string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), "BENCH="+name+"\x00") {
			pids = append(pids, must(strconv.Atoi(filepath.Base(filepath.Dir(file)))))
		}
	}
	return pids
}

// startOf is when a process was started, in ticks of the kernel's clock.
func startOf(pid int) uint64 {
	if e, err := tree.ReadEntry(pid); err == nil && e != nil {
		return e.Start
	}
	return math.MaxUint64
}

// openFiles counts the descriptors of this process, which is the agent.
func openFiles() int { return len(must(os.ReadDir("/proc/self/fd"))) }
