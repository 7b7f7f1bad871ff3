package workflows

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
)

// turn is one worker whose incarnation is replaced while it serves: on its own wish, once the pool has granted it, or as part of a
// rollout. At most rotation.max_unavailable workers have their turn at one time, whatever the cause.
type turn struct {
	Slot    int       `json:"slot"`
	From    int64     `json:"from"` // the incarnation to leave behind
	Cause   api.Cause `json:"cause,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Granted bool      `json:"granted,omitempty"`
	// Dropped says that the incarnation ended otherwise: an operator may have put the worker to rest.
	Dropped bool `json:"dropped,omitempty"`
}

// requested takes a worker's wish for a turn. The same wish again gets the same grant again.
func (p *pool) requested(r api.RotationRequest) {
	s := p.slot(r.Slot)
	if s == nil || p.Stopping || r.Slot >= p.Size || r.Incarnation < s.Incarnation {
		return
	}
	next := turn{Slot: r.Slot, From: r.Incarnation, Cause: r.Cause, Reason: r.Reason}
	if i := slices.IndexFunc(p.Turns, func(t turn) bool { return t.Slot == r.Slot }); i >= 0 {
		if p.Turns[i].From == r.Incarnation && p.Turns[i].Granted {
			p.grantTurn(&p.Turns[i])
			return
		}
		p.Turns = slices.Delete(p.Turns, i, i+1)
	}
	p.Turns = append(p.Turns, next)
}

// rotated takes a worker's word that its turn is over.
func (p *pool) rotated(d api.RotationDone) {
	p.Turns = slices.DeleteFunc(p.Turns, func(t turn) bool { return t.Slot == d.Slot && t.From == d.Incarnation })
	r := p.Rollout
	if r == nil {
		return
	}
	for i := range r.Current {
		if t := &r.Current[i]; t.Slot == d.Slot && t.From == d.Incarnation {
			t.Dropped = !d.Failed
			if d.Failed {
				r.Halted = "halted: worker " + api.WorkerName(p.PoolStart.Pool, d.Slot) + " serves on as it was: " + brief(d.Reason)
			}
		}
	}
}

// takeTurns ends the turns that are over and grants what there is room for. It reports whether anything changed.
func (p *pool) takeTurns() bool {
	before := len(p.Turns)
	p.Turns = slices.DeleteFunc(p.Turns, func(t turn) bool { return p.turnOver(t) })
	moved := len(p.Turns) != before
	for i := range p.Turns {
		t := &p.Turns[i]
		if t.Granted || p.inRollout(t.Slot) || !p.mayBegin(*t) {
			continue
		}
		if p.turnsTaken() >= p.Spec.Rotation.MaxUnavailable {
			break
		}
		if d := p.mayStart(api.WorkerName(p.PoolStart.Pool, t.Slot)); d.Action == policy.Wait {
			p.askAgain(d.Delay)
			break
		}
		p.grantTurn(t)
		moved = true
	}
	return moved
}

// turnOver reports whether the worker serves under the next incarnation, or will not.
func (p *pool) turnOver(t turn) bool {
	s := p.slot(t.Slot)
	return s == nil || s.Slot >= p.Size || s.Gone || s.Leaving || s.Incarnation > t.From && (s.serving() || s.Resting || !t.Granted) ||
		t.Dropped && s.Resting
}

// mayBegin reports whether the worker's incarnation is still the one that wished to go.
func (p *pool) mayBegin(t turn) bool {
	s := p.slot(t.Slot)
	return s != nil && s.Incarnation == t.From && !s.Resting && (s.serving() || s.State == lifecycle.Degraded)
}

// turnsTaken counts the workers that have their turn now.
func (p *pool) turnsTaken() int {
	n := 0
	for _, t := range p.Turns {
		if t.Granted {
			n++
		}
	}
	if p.Rollout != nil {
		n += len(p.Rollout.Current)
	}
	return n
}

// inTurn reports whether a worker has its turn by its own wish.
func (p *pool) inTurn(number int) bool {
	return slices.ContainsFunc(p.Turns, func(t turn) bool { return t.Slot == number && t.Granted })
}

func (p *pool) inRollout(number int) bool {
	return p.Rollout != nil && slices.ContainsFunc(p.Rollout.Current, func(t turn) bool { return t.Slot == number })
}

func (p *pool) grantTurn(t *turn) {
	t.Granted = true
	workflow.GetLogger(p.ctx).Info("rotation granted", "pool", p.PoolStart.Pool, "worker", t.Slot, "incarnation", t.From, "cause", t.Cause, "reason", t.Reason)
	p.tell(t.Slot, api.SignalRotationGrant, api.RotationGrant{Incarnation: t.From}, nil)
}

// tell sends a worker a message; a run does not end before it is delivered. What cannot be delivered is told to lost.
func (p *pool) tell(number int, name string, message any, lost func(*slot)) {
	future := workflow.SignalExternalWorkflow(p.ctx, api.WorkerWorkflowID(p.PoolStart.Pool, number), "", name, message)
	p.asking++
	p.ear.addFuture(future, func(f workflow.Future) {
		p.asking--
		err := f.Get(p.ctx, nil)
		s := p.slot(number)
		if err != nil && s != nil && lost != nil {
			lost(s)
		}
	})
}
