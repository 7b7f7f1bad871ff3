package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

const (
	// pressureInterval is the time between two readings of the host's memory.
	pressureInterval = 2 * time.Second
	// pressureRepeat is the time between two reports of a level that stays high or critical: the pools' first answer may
	// not suffice.
	pressureRepeat = 15 * time.Second
	// collectTimeout bounds one worker's garbage collection.
	collectTimeout = 10 * time.Second
)

// pressureMonitor follows the memory pressure of this host. It makes workers collect garbage from level medium on,
// lowers their memory limits while the level is high or critical, and reports the level to the pools, which recycle and
// stop workers.
type pressureMonitor struct {
	read      func() (hostMemory, error)
	report    func(pool string, m api.MemoryPressure) // to the pool
	processes interface{ List() []*process.Process }
	host      string
	log       *slog.Logger
	// freeMemory frees memory of the agent itself.
	freeMemory func(context.Context)
	// decided receives the decisions about workers.
	decided func(worker string, d activities.Decision)

	// Only run uses the following fields:
	level         policy.Pressure
	reason        string
	reportedAt    time.Time       // when all pools last got a report
	underPressure map[string]bool // pools whose last report was medium or higher, and which must get one of the end
	lowered       map[*process.Process]loweredLimit
	readFailed    bool // the last reading failed

	goroutines sync.WaitGroup
}

// hostMemory is the memory of a host, or of its container where that is less.
type hostMemory struct {
	AvailableBytes int64
	TotalBytes     int64
	policy.HostMemory
}

type loweredLimit struct{ from, to spec.Bytes }

func newPressureMonitor(read func() (hostMemory, error), report func(string, api.MemoryPressure),
	processes *process.Supervisor, host string, log *slog.Logger) *pressureMonitor {
	return &pressureMonitor{
		read: read, report: report, processes: processes, host: host, log: log,
		freeMemory: func(context.Context) {}, decided: func(string, activities.Decision) {},
		underPressure: map[string]bool{}, lowered: map[*process.Process]loweredLimit{},
	}
}

// run monitors until ctx ends, and waits for the goroutines it has started.
func (w *pressureMonitor) run(ctx context.Context) {
	defer w.goroutines.Wait()
	for now := range sleep.Ticks(ctx.Done(), pressureInterval) {
		w.step(ctx, now)
	}
}

// step reads the memory once and acts on a changed level.
func (w *pressureMonitor) step(ctx context.Context, now time.Time) {
	memory, err := w.read()
	if err != nil {
		if !w.readFailed {
			w.log.Error("memory pressure is not monitored", "error", err)
		}
		w.readFailed = true
		return
	}
	memory.AvailableShare = float64(memory.AvailableBytes) / float64(memory.TotalBytes)
	w.readFailed = false
	before := cmp.Or(w.level.Level, policy.PressureNone)
	var changed bool
	w.level, changed, w.reason = w.level.Next(memory.HostMemory, now)
	level := w.level.Level
	if changed {
		w.log.Warn("memory pressure", "level", level, "before", before, "reason", w.reason)
		w.relieve(ctx, level, level.AtLeast(before))
	}
	repeat := level.AtLeast(policy.PressureHigh) && now.Sub(w.reportedAt) >= pressureRepeat
	if changed || repeat {
		w.reportedAt = now
		w.reportAll()
	}
}

// relieve takes the measures that need no workflow.
func (w *pressureMonitor) relieve(ctx context.Context, level policy.Level, worse bool) {
	high := level.AtLeast(policy.PressureHigh)
	collect := worse && level.AtLeast(policy.PressureMedium)
	if !high {
		w.restoreLimits()
	}
	if collect {
		w.goroutines.Go(func() { w.freeMemory(ctx) })
	}
	for _, p := range w.processes.List() {
		sp := p.Spec()
		if !sp.Pressure.Enabled || sp.Policy.Mode == spec.PolicyObserve {
			continue
		}
		if collect && sp.Pool.Protocol == spec.ProtocolFrames {
			w.goroutines.Go(func() { w.collectGarbage(ctx, p) })
		}
		if high {
			w.lowerLimit(p)
		}
	}
}

func (w *pressureMonitor) collectGarbage(ctx context.Context, p *process.Process) {
	w.decided(p.Worker(), activities.CollectGarbage)
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	before := p.LatestSample().MemoryBytes
	if err := p.CollectGarbage(ctx); err != nil {
		w.log.Info("worker did not collect garbage", "worker", p.Worker(), "error", err) // it may be serving a long call
		return
	}
	if sample, err := p.FreshSample(ctx); err == nil {
		w.log.Info("worker collected garbage", "worker", p.Worker(), "before", before, "after", sample.MemoryBytes)
	}
}

// A lowered limit is lowerTo times the one before, and at least lowerMargin times what the tree uses, so that it ends
// only a worker that grows.
const (
	lowerTo     = 0.75
	lowerMargin = 1.1
)

// lowerLimit lowers the memory limit of a process that has one, once.
func (w *pressureMonitor) lowerLimit(p *process.Process) {
	limits := p.Limits()
	use := p.LatestSample().MemoryBytes
	if _, done := w.lowered[p]; done || limits.Memory == 0 || use == 0 {
		return
	}
	l := loweredLimit{from: limits.Memory, to: spec.Bytes(max(lowerTo*float64(limits.Memory), lowerMargin*float64(use)))}
	if l.to >= l.from {
		return
	}
	if _, err := p.ApplyLimits(l.to, limits.CPU); err != nil {
		w.log.Warn("lowering a memory limit failed", "worker", p.Worker(), "error", err)
		return
	}
	w.lowered[p] = l
	w.decided(p.Worker(), activities.LowerLimit)
	w.log.Info("memory limit lowered", "worker", p.Worker(), "before", l.from, "now", l.to)
}

// restoreLimits restores lowered limits, except those that were changed meanwhile.
func (w *pressureMonitor) restoreLimits() {
	for p, l := range w.lowered {
		delete(w.lowered, p)
		limits := p.Limits()
		if limits.Memory != l.to {
			continue
		}
		if _, err := p.ApplyLimits(l.from, limits.CPU); err == nil {
			w.decided(p.Worker(), activities.RestoreLimit)
			w.log.Info("memory limit restored", "worker", p.Worker(), "now", l.from)
		} else if !errors.Is(err, process.ErrUnavailable) {
			w.log.Warn("restoring a memory limit failed", "worker", p.Worker(), "error", err)
		}
	}
}

// workers returns the memory of the workers here by pool. It leaves out pools with pressure.enabled = false.
func (w *pressureMonitor) workers() map[string][]api.WorkerMemory {
	all := map[string][]api.WorkerMemory{}
	for _, p := range w.processes.List() {
		pool, slot, err := api.ParseWorkerName(p.Worker())
		if err != nil || !p.Spec().Pressure.Enabled {
			continue
		}
		all[pool] = append(all[pool], api.WorkerMemory{Slot: slot, Incarnation: p.Incarnation(),
			MemoryBytes: p.LatestSample().MemoryBytes})
	}
	return all
}

func (w *pressureMonitor) reportAll() {
	workers := w.workers()
	for pool := range w.underPressure {
		if _, here := workers[pool]; !here {
			workers[pool] = []api.WorkerMemory{} // the pool has stopped its workers here and waits for the end of the pressure
		}
	}
	clear(w.underPressure)
	for pool, list := range workers {
		w.report(pool, api.MemoryPressure{
			Host: w.host, Level: string(w.level.Level), Reason: w.reason, Workers: list,
		})
		if w.level.Level.AtLeast(policy.PressureMedium) {
			w.underPressure[pool] = true
		}
	}
	maps.DeleteFunc(w.lowered, func(p *process.Process, _ loweredLimit) bool { return p.HasEnded() })
}
