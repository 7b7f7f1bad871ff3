package pool

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/worker"
)

// disruption is one worker whose incarnation is replaced while it serves: at its own request, once the pool grants it,
// or as part of a rollout. At most rotation.max_unavailable workers are disrupted at one time.
type disruption struct {
	Slot    int       `json:"slot"`
	From    int64     `json:"from"` // the incarnation to replace
	Cause   api.Cause `json:"cause,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Granted bool      `json:"granted,omitempty"`
	// Since is when it was granted, or sent as part of a rollout.
	Since time.Time `json:"since,omitzero"`
	// EndedOtherwise says that the incarnation ended for another reason: an operator may have stopped the worker.
	EndedOtherwise bool `json:"dropped,omitempty"`
}

// grantMargin is by how much a grant lasts longer for the pool than for its worker.
const grantMargin = time.Minute

// disruptions grants rotations and carries out rollouts within the disruption budget.
type disruptions struct{ *pool }

// requested queues a worker's request for a rotation. The same request again gets the same grant again.
func (d disruptions) requested(r api.RotationRequest) {
	s := d.slot(r.Slot)
	if s == nil || d.Stopping || !d.isMember(r.Slot) || r.Incarnation < s.Incarnation {
		return
	}
	if i := slices.IndexFunc(d.Disruptions, func(t disruption) bool { return t.Slot == r.Slot }); i >= 0 {
		if t := &d.Disruptions[i]; t.From == r.Incarnation {
			if t.Granted {
				d.grantOne(t)
			}
			return // it keeps its place
		}
		d.Disruptions = slices.Delete(d.Disruptions, i, i+1)
	}
	d.Disruptions = append(d.Disruptions,
		disruption{Slot: r.Slot, From: r.Incarnation, Cause: r.Cause, Reason: display.Truncate(r.Reason, maxReason)})
}

// done takes a worker's report that its rotation has ended.
func (d disruptions) done(r api.RotationDone) {
	s := d.slot(r.Slot)
	if d.isGranted(r.Slot) && d.Breaker.Trial == d.worker(r.Slot) && s != nil && s.Incarnation == r.Incarnation {
		d.Breaker = d.Breaker.GaveUp(d.Now()) // the grant was its trial, and nothing was started
	}
	d.Disruptions = slices.DeleteFunc(d.Disruptions,
		func(t disruption) bool { return t.Slot == r.Slot && t.From == r.Incarnation })
	if d.Rollout == nil || s == nil || !s.isNewest(r.Restart) {
		return
	}
	current := d.Rollout.Current
	i := slices.IndexFunc(current, func(t disruption) bool { return t.Slot == r.Slot && t.From == r.Incarnation })
	switch {
	case i < 0:
	case r.Failed:
		d.Rollout.Current = slices.Delete(current, i, i+1)
		d.Rollout.fail("worker " + d.worker(r.Slot) + " stays in service unchanged: " + display.Shorten(r.Reason))
	default:
		current[i].EndedOtherwise = true
	}
}

// grant ends the disruptions that are over, and grants as many as the budget allows. It reports whether anything
// changed.
func (d disruptions) grant() bool {
	before := len(d.Disruptions)
	d.Disruptions = slices.DeleteFunc(d.Disruptions, d.isOver)
	changed := len(d.Disruptions) != before
	for i := range d.Disruptions {
		t := &d.Disruptions[i]
		if t.Granted || d.inRollout(t.Slot) || !d.mayBegin(*t) {
			continue
		}
		if d.active() >= d.Spec.Rotation.MaxUnavailable {
			break
		}
		if wait := d.throttle.admit(d.worker(t.Slot)); wait > 0 {
			d.wakeAfter(wait)
			break
		}
		d.grantOne(t)
		changed = true
	}
	return changed
}

// isOver reports whether the worker serves under the next incarnation, or will not, or has had the grant for too long:
// it may never have arrived. Nothing but other requests needs the end of a grant, so no timer measures it; workers that
// wait ask again.
func (d disruptions) isOver(t disruption) bool {
	if t.Granted && d.Now().Sub(t.Since) > worker.GrantTimeout(d.Spec)+grantMargin {
		workflow.GetLogger(d.Ctx).Warn("rotation did not end in time; revoking its permit", "pool", d.name(),
			"worker", t.Slot, "since", t.Since)
		return true
	}
	s := d.slot(t.Slot)
	return s == nil || !d.isMember(s.Slot) || s.Gone || s.Removing || s.Incarnation > t.From &&
		(s.isServing() || s.Resting || !t.Granted) ||
		t.EndedOtherwise && s.Resting
}

// mayBegin reports whether the worker's incarnation is still the one to replace.
func (d disruptions) mayBegin(t disruption) bool {
	s := d.slot(t.Slot)
	return s != nil && s.Incarnation == t.From && !s.Resting && (s.isServing() || s.State == lifecycle.Degraded)
}

// active counts the workers that are disrupted now.
func (d disruptions) active() int {
	n := 0
	for _, t := range d.Disruptions {
		if t.Granted {
			n++
		}
	}
	if d.Rollout != nil {
		n += len(d.Rollout.Current)
	}
	return n
}

// isGranted reports whether a worker is disrupted at its own request.
func (d disruptions) isGranted(number int) bool {
	return slices.ContainsFunc(d.Disruptions, func(t disruption) bool { return t.Slot == number && t.Granted })
}

func (d disruptions) inRollout(number int) bool {
	return d.Rollout != nil && slices.ContainsFunc(d.Rollout.Current, func(t disruption) bool { return t.Slot == number })
}

func (d disruptions) grantOne(t *disruption) {
	if !t.Granted { // a worker that asks again gets no more time
		t.Granted, t.Since = true, d.Now()
	}
	workflow.GetLogger(d.Ctx).Info("rotation granted", "pool", d.name(), "worker", t.Slot, "incarnation", t.From,
		"cause", t.Cause, "reason", t.Reason)
	d.signalWorker(t.Slot, api.SignalRotationGrant, api.RotationGrant{Incarnation: t.From})
}
