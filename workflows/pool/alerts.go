package pool

import (
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/emit"
)

// alert is a problem that the pool itself detects and that lasts until a user or a change fixes it. Prometheus has the
// alerts that clear on their own or depend on thresholds.
type alert struct {
	Name   string `json:"alert"`
	Source string `json:"source"`
}

// problem is an alert that holds, and why.
type problem struct {
	alert
	reason string
}

// alerts emits which alerts have begun and which have ended. It costs no command, so it may change without a version.
type alerts struct {
	*pool
	raised []problem
}

// raisedBefore is the reason of an alert whose problem ended with the run that raised it.
const raisedBefore = "an earlier run of the pool's workflow raised it; its event alert.raised has the reason"

// newAlerts takes over the alerts that earlier runs raised and did not clear.
func newAlerts(p *pool) alerts {
	a := alerts{pool: p}
	for _, one := range p.Raised {
		a.raised = append(a.raised, problem{one, raisedBefore})
	}
	return a
}

// problems are those that hold now, the pool's first.
func (p *pool) problems() (found []problem) {
	if p.Stopping {
		return nil
	}
	source := api.PoolSource(p.name())
	if p.Breaker.Open() {
		found = append(found, problem{alert{api.AlertStartsHeld, source}, startsPausedReason})
	}
	if r := p.Rollout; r != nil && r.Failed() {
		found = append(found, problem{alert{api.AlertRolloutHalted, source}, r.Halted})
	}
	for i := range p.Roster {
		s := &p.Roster[i]
		if s.ReasonCode == api.ReasonGaveUp && !s.Gone && p.isMember(s.Slot) {
			found = append(found, problem{alert{api.AlertWorkerGaveUp, api.WorkerSource(p.worker(s.Slot))}, s.Reason})
		}
	}
	return found
}

// emitChanges emits what has changed since it was called last.
func (a *alerts) emitChanges() {
	now := a.problems()
	a.emitNew(api.EventAlertCleared, a.raised, now)
	a.emitNew(api.EventAlertRaised, now, a.raised)
	a.raised, a.Raised = now, nil
	for _, one := range now {
		a.Raised = append(a.Raised, one.alert)
	}
}

// emitNew emits an event for each problem of these whose alert is not among the others.
func (a *alerts) emitNew(eventType string, these, others []problem) {
	if len(these) == 0 {
		return
	}
	known := make(map[alert]bool, len(others))
	for _, one := range others {
		known[one.alert] = true
	}
	for _, one := range these {
		if !known[one.alert] {
			emit.Event(a.Ctx, eventType, one.Source, api.AlertEvent{Alert: one.Name, Reason: one.reason})
		}
	}
}
