package activities

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

const (
	// A worker's share is never less than what it uses by this factor, nor than the least: a split must not break what runs.
	usageMargin    = 1.25
	minMemoryShare = 32 << 20 // bytes
	minCPUShare    = 50       // thousandths of a core
)

// Rebalance splits this host's budget among a pool's workers by what each uses, how busy and how well it is, and has the shares
// applied as limits unless the request only asks. That the budget is too small for what they use is no error: nothing changes then,
// and Problem says so.
func (h *Host) Rebalance(ctx context.Context, r api.RebalanceRequest) (api.RebalanceResult, error) {
	var result api.RebalanceResult
	var processes []*process.Process
	var memory, cpu []policy.Claim
	for _, one := range r.Processes {
		p, known := h.Processes.Get(one.Worker, one.Incarnation)
		if !known || hasEnded(p) {
			continue
		}
		m, c := h.allocationClaims(ctx, p, r.Limits)
		processes, memory, cpu = append(processes, p), append(memory, m), append(cpu, c)
	}
	if len(processes) == 0 {
		return result, nil
	}
	memoryBudget, err := h.memoryBudget(r.Resources)
	if err != nil {
		return result, fromProcess(err)
	}
	way := policy.Allocation(r.Resources.Allocation)
	memoryShares, err := way.Split(memoryBudget, memory)
	if err != nil {
		return api.RebalanceResult{Problem: "resources.memory_budget: " + err.Error()}, nil
	}
	cpuShares, err := way.Split(cpuBudget(r.Resources), cpu)
	if err != nil {
		return api.RebalanceResult{Problem: "resources.cpu_budget: " + err.Error()}, nil
	}
	for i, p := range processes {
		share := api.Share{
			Process:     api.Process{Worker: p.Worker(), Incarnation: p.Incarnation()},
			MemoryBytes: memoryShares[i], CPUCores: float64(cpuShares[i]) / 1000,
		}
		if r.Apply {
			reason := fmt.Sprintf("its %s share of the host's budget", r.Resources.Allocation)
			applied, err := h.ApplyLimits(ctx, api.ApplyLimitsRequest{Process: share.Process, MemoryBytes: share.MemoryBytes, CPUCores: share.CPUCores, Reason: reason})
			share.Limits = applied.Limits
			if share.Applied = err == nil; err != nil {
				share.Problem = err.Error()
			} else {
				h.observer().Decided(share.Worker, ApplyShare)
			}
		}
		result.Shares = append(result.Shares, share)
	}
	return result, nil
}

// allocationClaims are one worker's sides of the splits of memory and CPU.
func (h *Host) allocationClaims(ctx context.Context, p *process.Process, ceilings spec.Limits) (memory, cpu policy.Claim) {
	sample := p.LatestSample()
	if fresh, err := p.Sample(ctx); err == nil { // else it is ending, and what it last used will do
		sample = fresh
	}
	usage, _ := h.DataPlane.Usage(p.Worker(), p.Incarnation())
	v := h.health.of(p)
	load := v.load(usage.TotalMS, time.Now(), p.Info().ReadyAt) / float64(max(1, p.Spec().Pool.MaxInflight))
	score := h.Score(p.Worker(), p.Incarnation())
	memory = newClaim(sample.RSSBytes, minMemoryShare, int64(ceilings.Memory), load, score)
	cpu = newClaim(int64(10*sample.CPUPercent), minCPUShare, int64(1000*ceilings.CPU), load, score)
	return memory, cpu
}

// newClaim never asks for less than what is used, with a margin, nor for more than the ceiling; a ceiling of 0 is none.
func newClaim(use, least, ceiling int64, load, score float64) policy.Claim {
	floor := max(least, int64(usageMargin*float64(use)))
	if ceiling > 0 {
		floor = min(floor, ceiling)
	}
	return policy.Claim{Floor: floor, Ceiling: ceiling, Use: use, Load: load, Score: score}
}

func (h *Host) memoryBudget(r spec.Resources) (int64, error) {
	if r.MemoryBudget > 0 {
		return int64(r.MemoryBudget), nil
	}
	total, err := h.MemoryTotal()
	if err != nil {
		return 0, fmt.Errorf("find out how much memory host %s has; set resources.memory_budget: %w", h.ID, err)
	}
	return total, nil
}

// cpuBudget is in thousandths of a core.
func cpuBudget(r spec.Resources) int64 {
	if r.CPUBudget > 0 {
		return int64(1000 * r.CPUBudget)
	}
	return 1000 * int64(runtime.NumCPU())
}
