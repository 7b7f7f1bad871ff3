package pool

import (
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/display"
)

// rollout restarts workers one after the other, at most rotation.max_unavailable at a time. The next one begins when the one
// before serves again; one that gives up halts the rollout, so that a bad spec takes down no more than the budget.
type rollout struct {
	Reason  string       `json:"reason"`
	Version int64        `json:"version,omitempty"` // of the spec being rolled out; 0 for a restart on the same one
	Waiting []int        `json:"waiting,omitempty"`
	Current []disruption `json:"current,omitempty"`
	Done    int          `json:"done"`
	Halted  string       `json:"halted,omitempty"`
	// Cause is what the restarts are counted under.
	Cause api.Cause `json:"cause,omitempty"`
	// AtOnce has no regard to the budget (watch.mode = "all").
	AtOnce bool `json:"at_once,omitempty"`
}

func (r *rollout) view() api.Rollout {
	v := api.Rollout{Reason: r.Reason, Waiting: append([]int{}, r.Waiting...), Current: []int{}, Done: r.Done, Halted: r.Halted}
	for _, t := range r.Current {
		v.Current = append(v.Current, t.Slot)
	}
	return v
}

// beginRollout replaces whatever rollout there was; workers in the middle of their turn keep it, but for one that only waits to try again:
// what it failed for may be just what is mended now.
func (p *pool) beginRollout(cause api.Cause, reason string, version int64, slots []int) {
	next := &rollout{Reason: reason, Cause: cause, Version: version, Waiting: slots}
	if version == 0 && p.Rollout != nil {
		next.Version = p.Rollout.Version // a spec half rolled out goes on with the restart
	}
	if p.Rollout != nil && p.Rollout.Halted == "" {
		next.Current = slices.DeleteFunc(p.Rollout.Current, func(t disruption) bool {
			s := p.slot(t.Slot)
			return s != nil && s.State == lifecycle.Pending && slices.Contains(slots, t.Slot)
		})
	}
	p.Rollout = next
	workflow.GetLogger(p.ctx).Info("a rollout begins", "pool", p.PoolStart.Pool, "cause", cause, "workers", len(slots), "reason", reason)
}

// roll takes the rollout a step further and reports whether it did.
func (p *pool) roll() bool {
	r := p.Rollout
	if r == nil || r.Halted != "" {
		return false
	}
	moved := false
	r.Current = slices.DeleteFunc(r.Current, func(t disruption) bool {
		s := p.slot(t.Slot)
		switch {
		case s == nil || s.Slot >= p.Size: // scaled away
		case s.Incarnation > t.From && s.isServing():
			r.Done++
		case s.Incarnation > t.From && s.Resting:
			r.Halted = fmt.Sprintf("halted: worker %d did not come back: %s", t.Slot, display.Shorten(s.Reason))
		case t.EndedOtherwise && s.Resting: // an operator put it to rest in the middle of its turn
		default:
			return false
		}
		moved = true
		return true
	})
	if r.Halted != "" {
		return true
	}
	for (r.AtOnce || p.activeDisruptions() < p.Spec.Rotation.MaxUnavailable) && len(r.Waiting) > 0 {
		number := r.Waiting[0]
		s := p.slot(number)
		if s != nil && s.isStarting() || p.isDisrupted(number) || p.inRollout(number) {
			break // it may have begun on an older spec, and cannot be told yet
		}
		r.Waiting = r.Waiting[1:]
		if s != nil && number < p.Size && !s.Leaving {
			from := s.Incarnation
			if s.State == lifecycle.Pending || s.State == lifecycle.Created {
				from-- // it has its number, and a restart begins it
			}
			r.Current = append(r.Current, disruption{Slot: number, From: from})
			p.restartWorker(number, r.Cause, r.Reason)
		}
		moved = true
	}
	if len(r.Current) == 0 && len(r.Waiting) == 0 {
		p.Rollout = nil
		return true
	}
	return moved
}

// restartWorker tells one worker to drain and to come back on the pool's current spec.
func (p *pool) restartWorker(number int, cause api.Cause, reason string) {
	signal := api.Restart{Reason: reason, Cause: cause, Spec: &p.Spec, SpecVersion: p.SpecVersion}
	p.signalWorker(number, api.SignalRestart, signal, func(s *slot) {
		if !s.Gone {
			s.markLost("its workflow had ended when it was to restart")
		}
	})
}
