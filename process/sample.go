package process

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// maxSampleAge is how old the process table behind a sample may be, so that concurrent samples of many workers share
// one scan.
const maxSampleAge = time.Second

// ErrNoProcess is the error of a sample of an incarnation that has no process of its own.
var ErrNoProcess = errors.New("there is no process to measure")

// Sample measures the tree; the result may be up to 1 second old. It fails if the process has ended, and with
// ErrNoProcess if there is none.
func (p *Process) Sample(ctx context.Context) (api.Sample, error) {
	return p.sampleWithin(ctx, maxSampleAge, &p.supervisor.pss)
}

// FreshSample is Sample with a result that is never older than the call, and whose memory is not estimated.
func (p *Process) FreshSample(ctx context.Context) (api.Sample, error) {
	return p.sampleWithin(ctx, 0, nil)
}

// FirstSample is Sample for a process that has just become ready, of which no scan knows yet: where it can, it reads
// that tree alone, and not all processes of the system for each that starts. It may lack processes of the tree that
// have lost their parent.
func (p *Process) FirstSample(ctx context.Context) (api.Sample, error) {
	// what a sample before had must not count as ended
	if !p.hasTree() || p.spec.Pool.Kind != spec.KindProcess || !p.LatestSample().At.IsZero() {
		return p.Sample(ctx)
	}
	table, err := tree.ReadFamily(p.root.PID)
	if err != nil {
		return p.Sample(ctx)
	}
	key := p.treeKey()
	key.Known = nil // this table does not show who is gone
	return p.meter.Sample(table, key, &p.supervisor.pss)
}

func (p *Process) sampleWithin(ctx context.Context, maxAge time.Duration, budget *tree.PSSBudget) (api.Sample, error) {
	if err := ctx.Err(); err != nil {
		return api.Sample{}, err
	}
	p = p.now()
	if !p.hasTree() {
		return api.Sample{}, ErrNoProcess
	}
	// an older table does not contain the process
	table, err := tree.RecentTable(min(maxAge, time.Since(p.startedAt)))
	if err != nil {
		return api.Sample{}, err
	}
	return p.meter.Sample(table, p.treeKey(), budget)
}

// LatestSample returns the newest sample, periodic ones included; its At is zero before the first.
func (p *Process) LatestSample() api.Sample {
	if latest := p.now().meter.Latest(); !latest.At.IsZero() {
		return latest
	}
	return p.meter.Latest()
}

// sampleLoop samples every process each SampleEvery, until ctx ends.
func (s *Supervisor) sampleLoop(ctx context.Context) {
	for range sleep.Ticks(ctx.Done(), s.config.SampleEvery) {
		processes := s.all()
		if len(processes) == 0 {
			continue
		}
		table, err := tree.RecentTable(maxSampleAge)
		if err != nil {
			s.logger.Error("cannot sample processes", "error", err)
			continue
		}
		// The budget for reading PSS may not suffice for all of them.
		slices.SortStableFunc(processes, func(a, b *Process) int { return a.meter.PSSAt().Compare(b.meter.PSSAt()) })
		for _, p := range processes {
			if ctx.Err() != nil {
				return
			}
			if p.hasTree() {
				_, _ = p.meter.Sample(table, p.treeKey(), &s.pss) // fails only for a process that is ending
			}
		}
	}
}
