package pool

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/worker"
)

// rollout restarts workers one after the other, at most rotation.max_unavailable at a time. The next one restarts when
// the previous one serves again. A worker that gives up halts the rollout, so that a bad spec takes down no more than
// the budget.
type rollout struct {
	api.Rollout
	Current []disruption `json:"current,omitempty"` // instead of their slots
	Cause   api.Cause    `json:"cause,omitempty"`
	// AtOnce ignores the budget (watch.mode = "all").
	AtOnce bool `json:"at_once,omitempty"`
	// Since is when it began.
	Since time.Time `json:"since,omitzero"`
}

func (r *rollout) status() *api.Rollout {
	status := r.Rollout
	status.Waiting, status.Current = append([]int{}, r.Waiting...), []int{}
	for _, t := range r.Current {
		status.Current = append(status.Current, t.Slot)
	}
	return &status
}

// beginRollout replaces the current rollout, if there is one. The workers that this one disrupts stay disrupted. Those
// among them that the new one restarts get that restart at once, whatever they do: it may mend what they fail for, of
// which the pool learns late.
func (d disruptions) beginRollout(next rollout) {
	var disrupted []disruption
	if d.Rollout != nil {
		disrupted = d.Rollout.Current
	}
	next.Since, next.Waiting = d.Now(), slices.Clone(next.Waiting) // the caller answers with it
	d.Rollout = &next
	workflow.GetLogger(d.Ctx).Info("rollout started", "pool", d.name(), "cause", next.Cause, "workers", len(next.Waiting),
		"reason", next.Reason)
	for _, t := range disrupted {
		s, i := d.slot(t.Slot), slices.Index(next.Waiting, t.Slot)
		if s == nil || i < 0 {
			next.Current = append(next.Current, t)
			continue
		}
		next.Waiting = slices.Delete(next.Waiting, i, i+1)
		d.restartInRollout(s)
	}
}

// restartInRollout restarts a worker as part of the rollout.
func (d disruptions) restartInRollout(s *slot) {
	r, from := d.Rollout, s.Incarnation
	if s.State == lifecycle.Pending || s.State == lifecycle.Created {
		from-- // the restart begins the incarnation that already has its number
	}
	r.Current = append(r.Current, disruption{Slot: s.Slot, From: from, Since: d.Now()})
	d.restartWorker(s.Slot, r.Cause, r.Reason)
}

// halt halts a rollout for an operator. The workers that restart now go on.
func (r *rollout) halt(reason string) { r.Halted, r.ByOperator = "halted: "+reason, true }

// fail halts a rollout since a worker did not come back, unless another one has done so before.
func (r *rollout) fail(reason string) {
	if r.Halted == "" || r.ByOperator {
		r.Halted, r.ByOperator = "halted: "+reason, false
	}
}

// advanceRollout takes the rollout one step further, and reports whether anything changed. A halted one waits for the
// workers that restart.
func (d disruptions) advanceRollout() bool {
	r := d.Rollout
	if r == nil {
		return false
	}
	changed := d.endDisruptions(r)
	if r.Halted != "" {
		return changed
	}
	for i := 0; i < len(r.Waiting) && (r.AtOnce || d.active() < d.Spec.Rotation.MaxUnavailable); {
		number := r.Waiting[i]
		s := d.slot(number)
		if s != nil && s.isStarting() || d.isGranted(number) || d.inRollout(number) {
			i++ // its current start may use an older spec
			continue
		}
		r.Waiting = slices.Delete(r.Waiting, i, i+1)
		switch {
		case s == nil || !d.isMember(number) || s.Removing:
		case d.isOverruled(r, *s):
			workflow.GetLogger(d.Ctx).Info("rollout skips a worker that was stopped after it began", "pool", d.name(),
				"worker", d.worker(number))
		default:
			d.restartInRollout(s)
		}
		changed = true
	}
	if len(r.Current) == 0 && len(r.Waiting) == 0 {
		d.Rollout = nil
		return true
	}
	return changed
}

// isOverruled reports whether a worker was stopped after the rollout had begun: the later order counts. slots leaves
// out those that are stopped for memory before.
func (d disruptions) isOverruled(r *rollout, s slot) bool {
	return s.RestOrderedAt.After(r.Since) || d.pressure.isStopped(s.Slot)
}

// endDisruptions ends the disruptions of a rollout that are over, and halts the rollout if a worker did not come back.
// It reports whether anything changed.
func (d disruptions) endDisruptions(r *rollout) (changed bool) {
	r.Current = slices.DeleteFunc(r.Current, func(t disruption) bool {
		s := d.slot(t.Slot)
		begun := s != nil && d.hasBegun(t, *s)
		switch {
		case s == nil || !d.isMember(s.Slot): // removed
		case begun && s.isServing():
			r.Done++
		case d.isOverruled(r, *s):
			if !s.Resting {
				return false // it is still stopping
			}
		// The rollout waits for a worker whose workflow has ended, since that is started again, on the pool's spec.
		case begun && s.Resting && !s.Gone:
			r.fail(fmt.Sprintf("worker %d did not come back: %s", t.Slot, display.Shorten(s.Reason)))
		case begun && s.State == lifecycle.Pending && s.ReasonCode == api.ReasonNoCapacity:
			r.NoCapacity = append(r.NoCapacity, t.Slot)
			workflow.GetLogger(d.Ctx).Warn("rollout continues without a worker that has no capacity", "pool", d.name(),
				"worker", d.worker(t.Slot))
		case t.EndedOtherwise && s.Resting: // an operator stopped it meanwhile
		case d.ignoresRestart(t, *s):
			r.Overdue = append(r.Overdue, t.Slot)
			workflow.GetLogger(d.Ctx).Warn("rollout continues without a worker that has not begun to restart", "pool", d.name(),
				"worker", d.worker(t.Slot), "state", s.State)
		default:
			return false
		}
		changed = true
		return true
	})
	return changed
}

// hasBegun reports whether a worker has begun its restart: its incarnation is a newer one, with the pool's spec. What
// it reports before a restart arrives, such as that it gives up, says nothing of that one.
func (d disruptions) hasBegun(t disruption, s slot) bool {
	return s.isNewest(s.Begun) && s.Incarnation > t.From && s.SpecVersion >= d.SpecVersion
}

// ignoresRestart reports whether a worker serves, rests or is suspended as it was before its restart, and should have
// begun it by now. It wakes the loop when that time comes.
func (d disruptions) ignoresRestart(t disruption, s slot) bool {
	if d.hasBegun(t, s) || !s.State.InService() && s.State != lifecycle.Suspended && s.State != lifecycle.Degraded &&
		!s.Resting {
		return false
	}
	if wait := t.Since.Add(worker.GrantTimeout(d.Spec) + grantMargin).Sub(d.Now()); wait > 0 {
		d.wakeAfter(wait)
		return false
	}
	return true
}

// restartWorker restarts one worker on the pool's current spec. The loop sends the restart, in this workflow task or a
// later one: a task's budget covers all that it sends.
func (d disruptions) restartWorker(number int, cause api.Cause, reason string) {
	if s := d.slot(number); s != nil {
		d.pressure.leave(number)
		s.RestartID, s.Order = d.newRestart(), &pendingOrder{Kind: api.SignalRestart, Cause: cause, Reason: reason}
	}
}

// sendOrders sends the orders that this workflow task has room for.
func (d disruptions) sendOrders() {
	for i := range d.Roster {
		if s := &d.Roster[i]; s.Order != nil && !d.sendOrder(s) {
			return
		}
	}
}

// sendOrder sends a pending order, if signals reach the worker yet and it has got the order before, which must not
// overtake this one. It reports whether the task had room for it.
func (d disruptions) sendOrder(s *slot) bool {
	if s.isStarting() || d.IsSending(api.WorkerWorkflowID(d.name(), s.Slot), api.SignalOrder) {
		return true
	}
	if s.Gone || s.Removing {
		s.Order = nil // its next workflow starts on the current spec
		return true
	}
	if !d.fitsTask() {
		return false
	}
	order := api.Order{Kind: s.Order.Kind, Cause: s.Order.Cause, Reason: s.Order.Reason, By: s.Order.By,
		InPlace: s.Order.InPlace}
	if order.Kind == api.SignalRestart {
		order.ID = s.RestartID
		if !order.InPlace {
			order.Spec, order.SpecVersion = &d.Spec, d.SpecVersion
		}
	}
	s.Order = nil
	d.signalWorker(s.Slot, api.SignalOrder, order)
	return true
}
