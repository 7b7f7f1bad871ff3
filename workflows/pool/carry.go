package pool

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/worker"
)

// A pool continues as new when it waits for nothing whose result the end of the run would lose. A run that is overdue
// does not wait for that: carry turns what is under way into state, and the next run takes it up again.

// mayContinue reports whether the run continues as new now.
func (p *pool) mayContinue() bool {
	if p.MustContinue() {
		return true
	}
	if !p.ContinueDue(p.ContinueEvery) || p.allocation.inFlight > 0 || p.scaling.reserving || p.Stopping {
		return false
	}
	for i := range p.Roster { // the result of a start or an end would be lost
		if s := p.Roster[i]; s.isStarting() || (s.Removing && !s.Gone) {
			return false
		}
	}
	return true
}

// carry is the state for the next run.
func (p *pool) carry() Run {
	if p.allocation.inFlight > 0 {
		p.NextRebalance = p.Now() // the hosts are asked again
	}
	for i := range p.Roster {
		if s := &p.Roster[i]; s.isStarting() { // the next run starts it again; one that runs after all is asked to end
			s.Started, s.Gone, s.Reason = false, true, "the pool continued as new before this worker had started"
			s.Incarnation += worker.UnreportedIncarnations // of one that runs after all
		}
	}
	for _, m := range p.Undelivered() {
		var r api.Order
		if m.Name != api.SignalOrder || json.Unmarshal(m.Argument, &r) != nil || r.Kind != api.SignalRestart {
			p.Unsent = append(p.Unsent, m)
			continue
		}
		// the next run sends it with the spec, which is too large to be carried for each worker
		if s := p.target(m.To); s != nil && s.Order == nil && s.RestartID == r.ID {
			s.Order = &pendingOrder{Kind: r.Kind, Cause: r.Cause, Reason: r.Reason, InPlace: r.InPlace}
		}
	}
	return p.Run
}

// target is the slot of a worker's workflow, or nil.
func (p *pool) target(workflowID string) *slot {
	_, number, err := api.ParseWorkerName(strings.TrimPrefix(workflowID, api.PoolWorkflowID("")))
	if err != nil {
		return nil
	}
	return p.slot(number)
}

// undelivered handles a failed signal to a worker. It ignores a signal to the workflow that the slot had before: one
// that was sent before that was started, or in the same workflow task.
func (p *pool) undelivered(workflowID, name string, sent time.Time, _ error) {
	s := p.target(workflowID)
	if s == nil || s.Gone || !sent.After(s.began) {
		return
	}
	switch name {
	case api.SignalOrder:
		s.markLost("worker workflow had closed before an order reached it")
	case api.SignalEnd:
		if s.Removing {
			s.markLost("worker workflow had closed before it was asked to end")
		}
	}
}
