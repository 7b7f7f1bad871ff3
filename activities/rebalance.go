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
	// A worker's share is at least its usage times usageMargin, and at least the minimum: a split must not break a running
	// worker.
	usageMargin    = 1.25
	minMemoryShare = 32 << 20 // bytes
	minCPUShare    = 50       // thousandths of a core
)

// Rebalance splits this host's budget among the workers of a pool by their usage, load and health score, and applies
// the shares as limits if r.Apply is set. A budget below the current usage is not an error: no limit changes, and
// Problem says so.
func (h *Host) Rebalance(ctx context.Context, r api.RebalanceRequest) (api.RebalanceResult, error) {
	var result api.RebalanceResult
	var processes []*process.Process
	var memory, cpu []policy.Claim
	for _, requested := range r.Processes {
		p, known := h.Processes.Get(requested.Worker, requested.Incarnation)
		if !known || p.HasEnded() {
			continue
		}
		m, c := h.allocationClaims(ctx, p)
		processes, memory, cpu = append(processes, p), append(memory, m), append(cpu, c)
	}
	if len(processes) == 0 {
		return result, nil
	}
	memoryBudget, err := h.memoryBudget(r.Resources)
	if err != nil {
		return result, fromProcess(err)
	}
	memoryShares, err := policy.Split(r.Resources.Allocation, memoryBudget, memory)
	if err != nil {
		return api.RebalanceResult{Problem: "resources.memory_budget: " + err.Error()}, nil
	}
	cpuShares, err := policy.Split(r.Resources.Allocation, cpuBudget(r.Resources), cpu)
	if err != nil {
		return api.RebalanceResult{Problem: "resources.cpu_budget: " + err.Error()}, nil
	}
	for i, p := range processes {
		share := api.Share{
			Process:     processOf(p),
			MemoryBytes: memoryShares[i], CPUCores: float64(cpuShares[i]) / 1000,
		}
		if r.Apply {
			h.applyShare(p, &share, fmt.Sprintf("share of the host's budget (resources.allocation = %q)",
				r.Resources.Allocation))
		}
		result.Shares = append(result.Shares, share)
	}
	return result, nil
}

// applyShare makes a share the limits of a process.
func (h *Host) applyShare(p *process.Process, share *api.Share, reason string) {
	memory := spec.Bytes(share.MemoryBytes)
	mechanisms, err := p.ApplyLimits(memory, share.CPUCores)
	if err != nil {
		h.Logger.Warn("share of the host's budget not applied", "worker", p.Worker(), "incarnation", p.Incarnation(),
			"error", err)
		return
	}
	h.Logger.Info("limits applied", "worker", p.Worker(), "incarnation", p.Incarnation(), "memory", memory,
		"cpu", share.CPUCores, "reason", reason)
	share.Limits, share.Applied = mechanisms, true
	h.Observer.Decided(p.Worker(), ApplyShare)
}

// allocationClaims returns one worker's claims for the splits of memory and CPU.
func (h *Host) allocationClaims(ctx context.Context, p *process.Process) (memory, cpu policy.Claim) {
	sample := p.LatestSample()
	if fresh, err := p.Sample(ctx); err == nil { // on an error the process is ending; its last sample is good enough
		sample = fresh
	}
	load := 0.0
	if m := h.monitors.of(p); m != nil { // it has not ended
		load = m.health.load(p.Served().Usage().TotalMS, time.Now()) / float64(max(1, p.Spec().Pool.MaxInflight))
	}
	score := h.Score(p.Worker(), p.Incarnation())
	claim := func(use, minimum, ceiling int64) policy.Claim { // a ceiling of 0 means none
		floor := max(minimum, int64(usageMargin*float64(use)))
		if ceiling > 0 {
			floor = min(floor, ceiling)
		}
		return policy.Claim{Floor: floor, Ceiling: ceiling, Use: use, Load: load, Score: score}
	}
	limits := p.Spec().Limits
	return claim(sample.MemoryBytes, minMemoryShare, int64(limits.Memory)),
		claim(int64(10*sample.CPUPercent), minCPUShare, int64(1000*limits.CPU))
}

func (h *Host) memoryBudget(r spec.Resources) (int64, error) {
	if r.MemoryBudget > 0 {
		return int64(r.MemoryBudget), nil
	}
	total, err := h.MemoryTotal()
	if err != nil {
		return 0, fmt.Errorf("cannot read the memory of host %s; set resources.memory_budget: %w", h.ID, err)
	}
	return total, nil
}

// cpuBudget returns the budget in thousandths of a core.
func cpuBudget(r spec.Resources) int64 {
	if r.CPUBudget > 0 {
		return int64(1000 * r.CPUBudget)
	}
	return 1000 * int64(runtime.NumCPU())
}
