package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

const (
	// pressureInterval is how often the host's memory is looked at.
	pressureInterval = 2 * time.Second
	// pressureRepeat is how often pools are told of a level that lasts, from high on: what was done may not have been enough.
	pressureRepeat = 15 * time.Second
	// pressureSignalTimeout bounds one signal of it, and collectTimeout what one worker may take to collect garbage.
	pressureSignalTimeout = 3 * time.Second
	collectTimeout        = 10 * time.Second
)

// pressureMonitor follows how short of memory this host is. It does at once what needs nobody's consent: from medium on workers collect
// garbage, from high on their memory limits are lowered until it is over. And it tells the pools, which recycle and stop workers.
type pressureMonitor struct {
	read      func() (HostMemory, error)
	temporal  signalClient
	processes interface{ List() []*process.Process }
	host      string
	log       *slog.Logger
	// drop gives back what this agent itself keeps and can do without; nil is nothing.
	freeMemory func(context.Context)
	// decided is told what was decided about a worker; nil is nobody.
	decided func(worker string, d activities.Decision)

	// Of run alone:
	level         policy.Pressure
	memory        HostMemory // the newest
	reason        string
	reportedAt    time.Time       // when all pools were last told
	unreported    map[string]bool // pools that could not be told
	underPressure map[string]bool // pools that were told of more than none, and are to hear of its end
	lowered       map[*process.Process]lowering
	readFailed    bool // the source failed at the last look

	goroutines sync.WaitGroup
}

// lowering is a memory limit that was lowered.
type lowering struct{ before, to spec.Bytes }

func newPressureMonitor(source func() (HostMemory, error), temporal signalClient, processes *process.Supervisor, host string, log *slog.Logger) *pressureMonitor {
	return &pressureMonitor{
		read: source, temporal: temporal, processes: processes, host: host, log: log,
		unreported: map[string]bool{}, underPressure: map[string]bool{}, lowered: map[*process.Process]lowering{},
	}
}

// run looks until ctx ends, and waits for what it has begun.
func (w *pressureMonitor) run(ctx context.Context) {
	ticker := time.NewTicker(pressureInterval)
	defer ticker.Stop()
	defer w.goroutines.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			w.step(ctx, now)
		}
	}
}

// applyStep takes one look and does what follows from it.
func (w *pressureMonitor) step(ctx context.Context, now time.Time) {
	look, err := w.read()
	if err != nil {
		if !w.readFailed {
			w.log.Error("memory pressure is not looked after", "error", err)
		}
		w.readFailed = true
		return
	}
	w.readFailed, w.memory = false, look
	before := cmp.Or(w.level.Level, policy.PressureNone)
	var changed bool
	w.level, changed, w.reason = w.level.Next(look.toPolicy(), now)
	level := w.level.Level
	if changed {
		w.log.Warn("memory pressure", "level", level, "before", before, "reason", w.reason)
		w.relieve(ctx, level, level.AtLeast(before))
	}
	again := level.AtLeast(policy.PressureHigh) && now.Sub(w.reportedAt) >= pressureRepeat
	if changed || again {
		w.reportedAt = now
		w.reportAll(ctx)
		return
	}
	for pool := range w.unreported {
		w.report(ctx, pool, w.workers()[pool])
	}
}

// enforces reports whether the spec lets pressure be answered by more than words.
func enforces(sp spec.Spec) bool {
	return sp.Pressure.Enabled && sp.Policy.Mode != spec.PolicyObserve
}

// relieve does what this host does by itself.
func (w *pressureMonitor) relieve(ctx context.Context, level policy.Level, worse bool) {
	if !level.AtLeast(policy.PressureHigh) {
		w.restore()
	}
	if worse && level.AtLeast(policy.PressureMedium) && w.freeMemory != nil {
		w.goroutines.Go(func() { w.freeMemory(ctx) })
	}
	for _, p := range w.processes.List() {
		sp := p.Spec()
		if !enforces(sp) {
			continue
		}
		if worse && level.AtLeast(policy.PressureMedium) && sp.Pool.Protocol == spec.ProtocolFrames {
			w.goroutines.Go(func() { w.collect(ctx, p) })
		}
		if level.AtLeast(policy.PressureHigh) {
			w.lower(p)
		}
	}
}

func (w *pressureMonitor) countDecision(p *process.Process, d activities.Decision) {
	if w.decided != nil {
		w.decided(p.Worker(), d)
	}
}

func (w *pressureMonitor) collect(ctx context.Context, p *process.Process) {
	w.countDecision(p, activities.CollectGarbage)
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	before := p.LatestSample().RSSBytes
	if err := p.CollectGarbage(ctx); err != nil {
		w.log.Info("a worker has not collected garbage", "worker", p.Worker(), "error", err) // it may be in a long call
		return
	}
	if sample, err := p.FreshSample(ctx); err == nil {
		w.log.Info("a worker has collected garbage", "worker", p.Worker(), "before", before, "after", sample.RSSBytes)
	}
}

// A lowered limit is three quarters of the one before, but leaves a tenth more than what the tree uses: no worker is to be ended by it
// that does not grow.
const (
	lowerTo     = 0.75
	lowerMargin = 1.1
)

// lower lowers the memory limit of a process that has one, once.
func (w *pressureMonitor) lower(p *process.Process) {
	limits := p.Limits()
	use := p.LatestSample().RSSBytes
	if _, done := w.lowered[p]; done || limits.Memory == 0 || use == 0 {
		return
	}
	to := spec.Bytes(max(lowerTo*float64(limits.Memory), lowerMargin*float64(use)))
	if to >= limits.Memory {
		return
	}
	l := lowering{before: limits.Memory, to: to}
	limits.Memory = to
	if _, err := p.ApplyLimits(limits); err != nil {
		w.log.Warn("a memory limit was not lowered", "worker", p.Worker(), "error", err)
		return
	}
	w.lowered[p] = l
	w.countDecision(p, activities.LowerLimit)
	w.log.Info("a memory limit was lowered", "worker", p.Worker(), "before", l.before, "now", l.to)
}

// restore gives lowered limits back, unless somebody else has set others meanwhile.
func (w *pressureMonitor) restore() {
	for p, l := range w.lowered {
		delete(w.lowered, p)
		limits := p.Limits()
		if limits.Memory != l.to {
			continue
		}
		limits.Memory = l.before
		if _, err := p.ApplyLimits(limits); err != nil && !errors.Is(err, process.ErrUnavailable) {
			w.log.Warn("a lowered memory limit was not given back", "worker", p.Worker(), "error", err)
		} else if err == nil {
			w.countDecision(p, activities.RestoreLimit)
			w.log.Info("a lowered memory limit was given back", "worker", p.Worker(), "now", l.before)
		}
	}
}

// workers is what the processes here use, largest first, by pool; only of pools that are to hear of pressure.
func (w *pressureMonitor) workers() map[string][]api.WorkerMemory {
	all := map[string][]api.WorkerMemory{}
	for _, p := range w.processes.List() {
		pool, slot, err := api.ParseWorkerName(p.Worker())
		if err != nil || !p.Spec().Pressure.Enabled {
			continue
		}
		all[pool] = append(all[pool], api.WorkerMemory{Slot: slot, Incarnation: p.Incarnation(), RSSBytes: p.LatestSample().RSSBytes})
	}
	for _, list := range all {
		slices.SortStableFunc(list, func(a, b api.WorkerMemory) int { return cmp.Compare(b.RSSBytes, a.RSSBytes) })
	}
	return all
}

func (w *pressureMonitor) reportAll(ctx context.Context) {
	workers := w.workers()
	for pool := range w.underPressure {
		if _, here := workers[pool]; !here {
			workers[pool] = []api.WorkerMemory{} // it has stopped all that it had here, and waits for the end of it
		}
	}
	clear(w.unreported)
	for pool, list := range workers {
		w.report(ctx, pool, list)
	}
	for p := range w.lowered { // forget the ended
		select {
		case <-p.Done():
			delete(w.lowered, p)
		default:
		}
	}
}

// tell signals one pool; one that cannot be told is told at the next look, with what is so then.
func (w *pressureMonitor) report(ctx context.Context, pool string, workers []api.WorkerMemory) {
	ctx, cancel := context.WithTimeout(ctx, pressureSignalTimeout)
	defer cancel()
	err := w.temporal.SignalWorkflow(ctx, api.PoolWorkflowID(pool), "", api.SignalMemoryPressure, api.MemoryPressure{
		Host: w.host, Level: string(w.level.Level), Reason: w.reason, AvailableBytes: w.memory.AvailableBytes, TotalBytes: w.memory.TotalBytes,
		Workers: append([]api.WorkerMemory{}, workers...), At: time.Now().UTC(),
	})
	var gone *serviceerror.NotFound
	switch {
	case errors.As(err, &gone):
		delete(w.underPressure, pool)
		delete(w.unreported, pool)
	case err != nil:
		w.unreported[pool] = true
		w.log.Warn("a pool cannot be told of memory pressure yet", "pool", pool, "error", err)
	default:
		delete(w.unreported, pool)
		w.underPressure[pool] = true
		if !w.level.Level.AtLeast(policy.PressureMedium) {
			delete(w.underPressure, pool)
		}
	}
}
