// Package emit lets a workflow emit events to the agent that runs it. It costs no command and no history.
//
// Only the first execution of a workflow task emits events, never a replay, unless the Sink asks for that. A task that
// Temporal does not accept is executed again, and then emits again: events are emitted at least once.
package emit

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
)

// Sink takes the events of workflows, with Replays those of a replay, too. The zero value takes none.
type Sink struct {
	Emit    api.Emit
	Replays bool
}

type key struct{}

// With is a context whose workflow emits to a sink.
func With(ctx workflow.Context, to Sink) workflow.Context { return workflow.WithValue(ctx, key{}, to) }

// To is where the workflow of a context emits to.
func To(ctx workflow.Context) Sink {
	to, _ := ctx.Value(key{}).(Sink)
	return to
}

// Event emits an event that happened now.
func Event(ctx workflow.Context, eventType, source string, data any) {
	EventAt(ctx, eventType, source, workflow.Now(ctx), data)
}

// EventAt emits an event that happened at a time.
func EventAt(ctx workflow.Context, eventType, source string, at time.Time, data any) {
	if to := To(ctx); to.Emit != nil && (to.Replays || !workflow.IsReplaying(ctx)) {
		to.Emit(eventType, source, at, data)
	}
}
