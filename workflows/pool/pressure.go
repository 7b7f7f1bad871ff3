package pool

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/display"
)

// hostPressure is what the pool does about one host that is short of memory.
type hostPressure struct {
	Host   string       `json:"host"`
	Level  policy.Level `json:"level"`
	Reason string       `json:"reason,omitempty"`
	// Stopped are the slots that were drained and stopped to free memory, oldest first.
	Stopped []int `json:"stopped,omitempty"`
	// ReportedAt is when the host last reported, Recycled when its largest worker was last replaced.
	ReportedAt time.Time `json:"reported_at"`
	Recycled   time.Time `json:"recycled,omitzero"`
}

const (
	// recycleInterval is the minimum time between two replacements of a host's largest worker.
	recycleInterval = time.Minute
	// pressureTimeout is after how long without a report the workers stopped on a host are restarted: its agent may be
	// gone.
	pressureTimeout = 5 * time.Minute
)

// pressure stops or replaces the largest workers of hosts that are short of memory.
type pressure struct{ *pool }

// reported takes a host's report of its memory pressure.
func (p pressure) reported(m api.MemoryPressure) {
	if !p.Spec.Pressure.Enabled || p.Stopping {
		return
	}
	i := slices.IndexFunc(p.Pressure, func(h hostPressure) bool { return h.Host == m.Host })
	if i < 0 {
		p.Pressure = append(p.Pressure, hostPressure{Host: m.Host})
		i = len(p.Pressure) - 1
	}
	h := &p.Pressure[i]
	changed := h.Level != policy.Level(m.Level)
	h.Level, h.Reason, h.ReportedAt = policy.Level(m.Level), display.Truncate(m.Reason, maxReason), p.Now()
	if p.Spec.Policy.Mode == spec.PolicyObserve {
		if changed {
			workflow.GetLogger(p.Ctx).Info("recording memory pressure without acting on it (policy.mode = \"observe\")",
				"pool", p.name(), "target_host", m.Host, "level", m.Level, "reason", m.Reason)
		}
	} else {
		switch h.Level {
		case policy.PressureCritical:
			p.stopLargest(h, m)
		case policy.PressureHigh:
			p.recycleLargest(h, m)
		default:
			p.restartStopped(h, fmt.Sprintf("memory pressure on host %s is over", h.Host))
		}
	}
	if !h.Level.AtLeast(policy.PressureMedium) {
		p.Pressure = slices.DeleteFunc(p.Pressure,
			func(o hostPressure) bool { return o.Host == m.Host && len(o.Stopped) == 0 })
	}
	p.WakeUp()
}

// largestFirst are the workers in the report that still serve as they did then.
func (p pressure) largestFirst(m api.MemoryPressure) []api.WorkerMemory {
	workers := slices.DeleteFunc(slices.Clone(m.Workers), func(w api.WorkerMemory) bool {
		s := p.slot(w.Slot)
		return s == nil || s.Host != m.Host || s.Incarnation != w.Incarnation || !s.isServing() || s.Order != nil ||
			p.disruptions.isGranted(w.Slot) || p.disruptions.inRollout(w.Slot) || p.isStopped(w.Slot)
	})
	slices.SortStableFunc(workers, func(a, b api.WorkerMemory) int { return cmp.Compare(b.MemoryBytes, a.MemoryBytes) })
	return workers
}

// stopLargest drains and stops workers of the host, largest first, until half of those it had are down.
func (p pressure) stopLargest(h *hostPressure, m api.MemoryPressure) {
	workers := p.largestFirst(m)
	limit := (len(workers)+len(h.Stopped))/2 - len(h.Stopped)
	for _, w := range workers[:max(0, min(limit, len(workers)))] {
		reason := fmt.Sprintf("memory pressure on host %s is critical; this worker uses %d MB and stays down until the "+
			"pressure is over. %s",
			h.Host, w.MemoryBytes/1_000_000, m.Reason)
		h.Stopped = append(h.Stopped, w.Slot)
		workflow.GetLogger(p.Ctx).Warn("stopping worker to free memory", "pool", p.name(), "worker", w.Slot, "reason", reason)
		p.slot(w.Slot).Order = &pendingOrder{Kind: api.SignalDrain, Cause: api.CausePressure, Reason: reason, By: "pool"}
	}
}

// recycleLargest replaces the host's largest worker. The old process stops first: there is no memory for two.
func (p pressure) recycleLargest(h *hostPressure, m api.MemoryPressure) {
	workers := p.largestFirst(m)
	if len(workers) == 0 || p.Now().Sub(h.Recycled) < recycleInterval ||
		p.disruptions.active() >= p.Spec.Rotation.MaxUnavailable {
		return
	}
	largest := workers[0]
	h.Recycled = p.Now()
	reason := fmt.Sprintf("memory pressure on host %s is high; this worker is its largest with %d MB. %s", h.Host,
		largest.MemoryBytes/1_000_000, m.Reason)
	workflow.GetLogger(p.Ctx).Warn("replacing worker to free memory", "pool", p.name(), "worker", largest.Slot,
		"reason", reason)
	p.Disruptions = append(p.Disruptions,
		disruption{Slot: largest.Slot, From: largest.Incarnation, Cause: api.CausePressure, Reason: reason, Granted: true,
			Since: p.Now()})
	p.disruptions.restartWorker(largest.Slot, api.CausePressure, reason)
	p.slot(largest.Slot).Order.InPlace = true
}

// restartStopped restarts the workers that were stopped on a host.
func (p pressure) restartStopped(h *hostPressure, reason string) {
	for _, number := range slices.Clone(h.Stopped) {
		if s := p.slot(number); s != nil && !s.Gone && !s.Removing {
			p.disruptions.restartWorker(number, api.CausePressure, reason)
			if r := p.Rollout; r != nil && s.SpecVersion < p.SpecVersion { // which may fail: the rollout delivers it
				s.Order.InPlace = true
				if !slices.Contains(r.Waiting, number) {
					r.Waiting = append(r.Waiting, number)
				}
			}
		}
	}
	h.Stopped = nil
}

// leave ends what the pressure wants of a worker: an operator has stopped it, too, or it is started.
func (p pressure) leave(number int) {
	for i := range p.Pressure {
		h := &p.Pressure[i]
		h.Stopped = slices.DeleteFunc(h.Stopped, func(n int) bool { return n == number })
	}
}

// isStopped reports whether a slot is down because its host is short of memory.
func (p pressure) isStopped(number int) bool {
	return slices.ContainsFunc(p.Pressure, func(h hostPressure) bool { return slices.Contains(h.Stopped, number) })
}

// expire restarts the workers that were stopped on hosts that have not reported for pressureTimeout.
func (p pressure) expire() {
	for i := range p.Pressure {
		h := &p.Pressure[i]
		if len(h.Stopped) == 0 {
			continue
		}
		if wait := h.ReportedAt.Add(pressureTimeout).Sub(p.Now()); wait > 0 {
			p.wakeAfter(wait)
			continue
		}
		p.restartStopped(h, fmt.Sprintf("host %s has not reported memory pressure for %s", h.Host, pressureTimeout))
	}
	p.Pressure = slices.DeleteFunc(p.Pressure, func(h hostPressure) bool {
		return len(h.Stopped) == 0 && p.Now().Sub(h.ReportedAt) >= pressureTimeout
	})
}
