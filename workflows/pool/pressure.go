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
)

// hostPressure is what a pool does about one host that is short of memory.
type hostPressure struct {
	Host   string       `json:"host"`
	Level  policy.Level `json:"level"`
	Reason string       `json:"reason,omitempty"`
	// Parked are the slots that were drained and stopped to give memory back, in that order.
	Parked []int `json:"parked,omitempty"`
	// Heard is when the host last said how it is, Recycled when its largest worker was last replaced.
	ReportedAt time.Time `json:"heard"`
	Recycled   time.Time `json:"recycled,omitzero"`
}

const (
	// recycleInterval is the least time between two replacements of a host's largest worker.
	recycleInterval = time.Minute
	// pressureTimeout is how long a host may be silent before what was parked on it comes back: its agent may be gone.
	pressureTimeout = 5 * time.Minute
)

// memoryPressure answers a host's word about its memory.
func (p *pool) memoryPressure(m api.MemoryPressure) {
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
	h.Level, h.Reason, h.ReportedAt = policy.Level(m.Level), m.Reason, p.now()
	if p.Spec.Policy.Mode == spec.PolicyObserve {
		if changed {
			workflow.GetLogger(p.ctx).Info("memory pressure is only recorded, as policy.mode says", "pool", p.PoolStart.Pool, "host", m.Host, "level", m.Level, "reason", m.Reason)
		}
	} else {
		switch h.Level {
		case policy.PressureCritical:
			p.stopLargest(h, m)
		case policy.PressureHigh:
			p.recycleLargest(h, m)
		default:
			p.restartParked(h, fmt.Sprintf("memory pressure on host %s has passed", h.Host))
		}
	}
	if h.Level != policy.PressureCritical && h.Level != policy.PressureHigh && h.Level != policy.PressureMedium {
		p.Pressure = slices.DeleteFunc(p.Pressure, func(o hostPressure) bool { return o.Host == m.Host && len(o.Parked) == 0 })
	}
	p.wakeUp()
}

// largestFirst lists the workers of the message that serve still as they did when it was sent.
func (p *pool) largestFirst(m api.MemoryPressure) []api.WorkerMemory {
	workers := slices.DeleteFunc(slices.Clone(m.Workers), func(w api.WorkerMemory) bool {
		s := p.slot(w.Slot)
		return s == nil || s.Host != m.Host || s.Incarnation != w.Incarnation || !s.isServing() || p.isDisrupted(w.Slot) || p.inRollout(w.Slot) || p.isParked(w.Slot)
	})
	slices.SortStableFunc(workers, func(a, b api.WorkerMemory) int { return cmp.Compare(b.RSSBytes, a.RSSBytes) })
	return workers
}

// park drains and stops workers of the host, largest first, until half of those it had are down.
func (p *pool) stopLargest(h *hostPressure, m api.MemoryPressure) {
	workers := p.largestFirst(m)
	room := (len(workers)+len(h.Parked))/2 - len(h.Parked)
	for _, w := range workers[:max(0, min(room, len(workers)))] {
		reason := fmt.Sprintf("host %s is critically short of memory, and this worker uses %d MB: stopped until that has passed. %s",
			h.Host, w.RSSBytes/1_000_000, m.Reason)
		h.Parked = append(h.Parked, w.Slot)
		workflow.GetLogger(p.ctx).Warn("a worker is stopped for want of memory", "pool", p.PoolStart.Pool, "worker", w.Slot, "reason", reason)
		p.signalWorker(w.Slot, api.SignalDrain, api.Control{Reason: reason, By: "pool"}, nil)
	}
}

// recycleLargest replaces the host's largest worker, old process first: there is no memory for two.
func (p *pool) recycleLargest(h *hostPressure, m api.MemoryPressure) {
	workers := p.largestFirst(m)
	if len(workers) == 0 || p.now().Sub(h.Recycled) < recycleInterval || p.activeDisruptions() >= p.Spec.Rotation.MaxUnavailable {
		return
	}
	largest := workers[0]
	h.Recycled = p.now()
	reason := fmt.Sprintf("host %s is short of memory, and this is its largest worker with %d MB. %s", h.Host, largest.RSSBytes/1_000_000, m.Reason)
	workflow.GetLogger(p.ctx).Warn("a worker is replaced for want of memory", "pool", p.PoolStart.Pool, "worker", largest.Slot, "reason", reason)
	p.Disruptions = append(p.Disruptions, disruption{Slot: largest.Slot, From: largest.Incarnation, Cause: api.CausePressure, Reason: reason, Granted: true})
	p.signalWorker(largest.Slot, api.SignalRestart, api.Restart{Reason: reason, By: "pool", Cause: api.CausePressure, InPlace: true}, nil)
}

// restartParked brings back what was stopped on a host.
func (p *pool) restartParked(h *hostPressure, reason string) {
	for _, number := range h.Parked {
		if s := p.slot(number); s != nil && !s.Gone && !s.Leaving {
			p.restartWorker(number, api.CausePressure, reason)
		}
	}
	h.Parked = nil
}

// isParked reports whether a slot is down for want of memory on its host.
func (p *pool) isParked(number int) bool {
	return slices.ContainsFunc(p.Pressure, func(h hostPressure) bool { return slices.Contains(h.Parked, number) })
}

// expirePressure brings back what was stopped on hosts that have long said nothing.
func (p *pool) expirePressure() {
	for i := range p.Pressure {
		h := &p.Pressure[i]
		if len(h.Parked) == 0 {
			continue
		}
		if wait := h.ReportedAt.Add(pressureTimeout).Sub(p.now()); wait > 0 {
			p.wakeAfter(wait)
			continue
		}
		p.restartParked(h, fmt.Sprintf("host %s has not said for %s that it is short of memory", h.Host, pressureTimeout))
	}
	p.Pressure = slices.DeleteFunc(p.Pressure, func(h hostPressure) bool {
		return len(h.Parked) == 0 && p.now().Sub(h.ReportedAt) >= pressureTimeout
	})
}
