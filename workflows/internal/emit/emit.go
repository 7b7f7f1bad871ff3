// Package emit lets a workflow emit events to the agent that runs it. It costs no command and no history.
//
// Only the first execution of a workflow task emits events, never a replay. A task that Temporal does not accept is
// executed again, and then emits again: events are emitted at least once.
package emit

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
)

type key struct{}

// With is a context whose workflow emits to a function.
func With(ctx workflow.Context, to api.Emit) workflow.Context {
	return workflow.WithValue(ctx, key{}, to)
}

// Listening reports whether events are emitted now: this is no replay, and somebody takes them.
func Listening(ctx workflow.Context) bool {
	return ctx.Value(key{}) != nil && !workflow.IsReplaying(ctx)
}

// Event emits an event that happened now.
func Event(ctx workflow.Context, eventType, source string, data any) {
	EventAt(ctx, eventType, source, workflow.Now(ctx), data)
}

// EventAt emits an event that happened at a time.
func EventAt(ctx workflow.Context, eventType, source string, at time.Time, data any) {
	if Listening(ctx) {
		ctx.Value(key{}).(api.Emit)(eventType, source, at, data)
	}
}
