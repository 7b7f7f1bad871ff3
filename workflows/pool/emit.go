package pool

import (
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/internal/emit"
)

func (p *pool) emit(eventType string, data api.PoolEvent) {
	emit.Event(p.Ctx, eventType, api.PoolSource(p.name()), data)
}

// emitScaled emits a change of size, and why and by whom; "" if that is unknown.
func (p *pool) emitScaled(from, to int, reason string) {
	if from != to {
		p.emit(api.EventPoolScaled, api.PoolEvent{From: &from, To: &to, Reason: reason})
	}
}

// attribution is why and by whom something was requested; "" if the request does not say.
func attribution(reason, by string) string {
	if reason == "" && by == "" {
		return ""
	}
	return display.Attributed(reason, by)
}
