package process

import (
	"context"
	"time"

	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// DefaultEnforceEvery is the interval at which limits of the mechanism "sampler" are checked.
const DefaultEnforceEvery = time.Second

// limitsInForce never change: others take their place.
type limitsInForce struct {
	limits     spec.Limits
	mechanisms map[string]limits.Mechanism
}

// Limits returns the limits in effect: the spec's, or those of ApplyLimits.
func (p *Process) Limits() spec.Limits { return p.now().inForce.Load().limits }

// LimitMechanisms returns the mechanism of each limit that is set, by its key in the section limits. Nobody may change
// the map.
func (p *Process) LimitMechanisms() map[string]limits.Mechanism {
	return p.now().inForce.Load().mechanisms
}

// Exceeded is closed when the process exceeds a limit that calls for its graceful replacement; Violation then says
// which.
func (p *Process) Exceeded() <-chan struct{} { return p.exceeded }

// Violation returns the first violation of a limit, or the zero Violation.
func (p *Process) Violation() limits.Violation {
	if v := p.head.violation.Load(); v != nil {
		return *v
	}
	return limits.Violation{}
}

// MemoryLimitExceeded reports whether the kernel or the sampler has killed the tree for exceeding limits.memory. It is
// true before the process has ended, so that those whose calls the kill cuts learn why.
func (p *Process) MemoryLimitExceeded() bool {
	p = p.now()
	return p.memoryExceeded.Load() || p.plan.cgroup.OOMKilled()
}

// ApplyLimits changes limits.memory and limits.cpu of an incarnation, 0 being none, and returns the mechanism of each
// limit. It fails with CodeInvalid for a kind whose limits cannot be changed, and with CodeUnavailable if the
// incarnation has ended. Limits set before a failure stay set; to undo them, apply the previous limits.
func (p *Process) ApplyLimits(memory spec.Bytes, cpu float64) (map[string]limits.Mechanism, error) {
	p.head.applying.Lock()
	defer p.head.applying.Unlock()
	if p.HasEnded() {
		return nil, coded(CodeUnavailable, nil, "%s has ended, so its limits cannot be changed", p.key())
	}
	return p.now().applyLimits(memory, cpu)
}

// applyLimits needs head.applying. If the process has exited, it sets what the next one of the incarnation takes over.
func (p *Process) applyLimits(memory spec.Bytes, cpu float64) (map[string]limits.Mechanism, error) {
	if kind := p.spec.Pool.Kind; kind != spec.KindProcess {
		return nil, coded(CodeInvalid, nil, "%s is of the kind %q, whose limits cannot be changed while it runs", p.key(),
			kind)
	}
	l := p.Limits()
	l.Memory, l.CPU = memory, cpu
	planned, err := limits.NewPlan(l, p.Worker(), p.supervisor.host)
	if err != nil {
		return nil, coded(CodeInvalid, err, "")
	}
	if p.plan.cgroup == nil { // a running tree cannot enter a cgroup
		for key, mechanism := range planned.Mechanisms {
			if mechanism == limits.ByCgroup {
				planned.Mechanisms[key] = limits.BySampler
			}
		}
	} else if err := p.plan.cgroup.SetLimits(planned.Cgroup); err != nil && !sleep.Ended(p.exited) {
		return nil, err
	}
	p.inForce.Store(&limitsInForce{l, planned.Mechanisms})
	return planned.Mechanisms, nil
}

// enforceLoop enforces the limits of the mechanism "sampler", until ctx ends.
func (s *Supervisor) enforceLoop(ctx context.Context) {
	for range sleep.Ticks(ctx.Done(), s.config.EnforceEvery) {
		s.enforce()
	}
}

func (s *Supervisor) enforce() {
	var table *tree.Table
	for _, p := range s.all() {
		now := p.inForce.Load()
		sampled := limits.NewSampled(now.limits, now.mechanisms)
		if sampled.IsZero() {
			continue
		}
		if table == nil {
			var err error
			if table, err = tree.ReadTable(); err != nil {
				s.logger.Error("cannot enforce limits by sampling", "error", err)
				return
			}
		}
		p.enforce(sampled, table)
	}
}

// enforce compares the tree with its limits and acts on a violation.
func (p *Process) enforce(sampled limits.Sampled, table *tree.Table) {
	key := p.treeKey()
	if !key.Unreaped {
		return // it has exited
	}
	members := table.Members(key)
	if len(members) == 0 {
		return
	}
	action, violation := sampled.Check(limits.MeasureTree(table.At, members, sampled.Memory), &p.cpuWindow)
	switch action {
	case limits.Replace:
		p.reportViolation(violation)
	case limits.Kill:
		if violation.Limit == "memory" {
			p.memoryExceeded.Store(true)
		}
		p.fail(violation.Reason + "; killed for exceeding the limit by half or more")
	}
}

// reportViolation records the first violation and closes Exceeded.
func (p *Process) reportViolation(v limits.Violation) {
	if p.head.violation.CompareAndSwap(nil, &v) {
		close(p.head.exceeded)
		p.logger.Warn("worker exceeded a limit", "limit", v.Limit, "reason", v.Reason)
	}
}
