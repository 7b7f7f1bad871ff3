package pool

import (
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/emit"
)

// emit emits an event of the pool.
func (p *pool) emit(eventType string, data api.PoolEvent) {
	emit.Event(p.Ctx, eventType, api.PoolSource(p.name()), data)
}

// emitScaled emits a change of size.
func (p *pool) emitScaled(from, to int) {
	if from != to {
		p.emit(api.EventPoolScaled, api.PoolEvent{From: &from, To: &to})
	}
}
