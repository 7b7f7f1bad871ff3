package pool

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/workflows/internal/display"
)

// disruption is one worker whose incarnation is replaced while it serves: on its own wish, once the pool has granted it, or as part of a
// rollout. At most rotation.max_unavailable workers have their turn at one time, whatever the cause.
type disruption struct {
	Slot    int       `json:"slot"`
	From    int64     `json:"from"` // the incarnation to leave behind
	Cause   api.Cause `json:"cause,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Granted bool      `json:"granted,omitempty"`
	// Dropped says that the incarnation ended otherwise: an operator may have put the worker to rest.
	EndedOtherwise bool `json:"dropped,omitempty"`
}

// rotationRequested takes a worker's wish for a turn. The same wish again gets the same grant again.
func (p *pool) rotationRequested(r api.RotationRequest) {
	s := p.slot(r.Slot)
	if s == nil || p.Stopping || r.Slot >= p.Size || r.Incarnation < s.Incarnation {
		return
	}
	next := disruption{Slot: r.Slot, From: r.Incarnation, Cause: r.Cause, Reason: r.Reason}
	if i := slices.IndexFunc(p.Disruptions, func(t disruption) bool { return t.Slot == r.Slot }); i >= 0 {
		if p.Disruptions[i].From == r.Incarnation && p.Disruptions[i].Granted {
			p.grantDisruption(&p.Disruptions[i])
			return
		}
		p.Disruptions = slices.Delete(p.Disruptions, i, i+1)
	}
	p.Disruptions = append(p.Disruptions, next)
}

// rotationDone takes a worker's word that its turn is over.
func (p *pool) rotationDone(d api.RotationDone) {
	p.Disruptions = slices.DeleteFunc(p.Disruptions, func(t disruption) bool { return t.Slot == d.Slot && t.From == d.Incarnation })
	r := p.Rollout
	if r == nil {
		return
	}
	for i := range r.Current {
		if t := &r.Current[i]; t.Slot == d.Slot && t.From == d.Incarnation {
			t.EndedOtherwise = !d.Failed
			if d.Failed {
				r.Halted = "halted: worker " + api.WorkerName(p.PoolStart.Pool, d.Slot) + " serves on as it was: " + display.Shorten(d.Reason)
			}
		}
	}
}

// grantDisruptions ends the turns that are over and grants what there is room for. It reports whether anything changed.
func (p *pool) grantDisruptions() bool {
	before := len(p.Disruptions)
	p.Disruptions = slices.DeleteFunc(p.Disruptions, func(t disruption) bool { return p.disruptionOver(t) })
	moved := len(p.Disruptions) != before
	for i := range p.Disruptions {
		t := &p.Disruptions[i]
		if t.Granted || p.inRollout(t.Slot) || !p.mayDisrupt(*t) {
			continue
		}
		if p.activeDisruptions() >= p.Spec.Rotation.MaxUnavailable {
			break
		}
		if d := p.admitStart(api.WorkerName(p.PoolStart.Pool, t.Slot)); d.Action == policy.Wait {
			p.wakeAfter(d.Delay)
			break
		}
		p.grantDisruption(t)
		moved = true
	}
	return moved
}

// disruptionOver reports whether the worker serves under the next incarnation, or will not.
func (p *pool) disruptionOver(t disruption) bool {
	s := p.slot(t.Slot)
	return s == nil || s.Slot >= p.Size || s.Gone || s.Leaving || s.Incarnation > t.From && (s.isServing() || s.Resting || !t.Granted) ||
		t.EndedOtherwise && s.Resting
}

// mayDisrupt reports whether the worker's incarnation is still the one that wished to go.
func (p *pool) mayDisrupt(t disruption) bool {
	s := p.slot(t.Slot)
	return s != nil && s.Incarnation == t.From && !s.Resting && (s.isServing() || s.State == lifecycle.Degraded)
}

// activeDisruptions counts the workers that have their turn now.
func (p *pool) activeDisruptions() int {
	n := 0
	for _, t := range p.Disruptions {
		if t.Granted {
			n++
		}
	}
	if p.Rollout != nil {
		n += len(p.Rollout.Current)
	}
	return n
}

// isDisrupted reports whether a worker has its turn by its own wish.
func (p *pool) isDisrupted(number int) bool {
	return slices.ContainsFunc(p.Disruptions, func(t disruption) bool { return t.Slot == number && t.Granted })
}

func (p *pool) inRollout(number int) bool {
	return p.Rollout != nil && slices.ContainsFunc(p.Rollout.Current, func(t disruption) bool { return t.Slot == number })
}

func (p *pool) grantDisruption(t *disruption) {
	t.Granted = true
	workflow.GetLogger(p.ctx).Info("rotation granted", "pool", p.PoolStart.Pool, "worker", t.Slot, "incarnation", t.From, "cause", t.Cause, "reason", t.Reason)
	p.signalWorker(t.Slot, api.SignalRotationGrant, api.RotationGrant{Incarnation: t.From}, nil)
}

// tell sends a worker a message; a run does not end before it is delivered. What cannot be delivered is told to lost.
func (p *pool) signalWorker(number int, name string, message any, lost func(*slot)) {
	future := workflow.SignalExternalWorkflow(p.ctx, api.WorkerWorkflowID(p.PoolStart.Pool, number), "", name, message)
	p.signalsInFlight++
	p.selector.AddFuture(future, func(f workflow.Future) {
		p.signalsInFlight--
		err := f.Get(p.ctx, nil)
		s := p.slot(number)
		if err != nil && s != nil && lost != nil {
			lost(s)
		}
	})
}
