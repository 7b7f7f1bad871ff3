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
	Reason string `json:"reason,omitempty"`
}

// problems are the alerts that hold now, the pool's first.
func (p *pool) problems() (found []alert) {
	if p.Stopping {
		return nil
	}
	source := api.PoolSource(p.name())
	if p.Breaker.Open() {
		found = append(found, alert{api.AlertStartsHeld, source, startsPausedReason})
	}
	if r := p.Rollout; r != nil && r.Failed() {
		found = append(found, alert{api.AlertRolloutHalted, source, r.Halted})
	}
	for i := range p.Roster {
		s := &p.Roster[i]
		if s.ReasonCode == api.ReasonGaveUp && !s.Gone && p.isMember(s.Slot) {
			found = append(found, alert{api.AlertWorkerGaveUp, api.WorkerSource(p.worker(s.Slot)), s.Reason})
		}
	}
	return found
}

// emitAlerts emits which alerts have begun and which have ended since it was called last, perhaps by an earlier run. It
// costs no command, so it may change without a version.
func (p *pool) emitAlerts() {
	now := p.problems()
	p.emitNew(api.EventAlertCleared, p.Raised, now)
	p.emitNew(api.EventAlertRaised, now, p.Raised)
	p.Raised = now
}

// emitNew emits an event for each of these alerts that is not among the others, whatever its reason there.
func (p *pool) emitNew(eventType string, these, others []alert) {
	if len(these) == 0 {
		return
	}
	known := make(map[[2]string]bool, len(others))
	for _, one := range others {
		known[[2]string{one.Name, one.Source}] = true
	}
	for _, one := range these {
		if !known[[2]string{one.Name, one.Source}] {
			emit.Event(p.Ctx, eventType, one.Source, api.AlertEvent{Alert: one.Name, Reason: one.Reason})
		}
	}
}
