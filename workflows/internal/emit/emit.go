// Package emit lets a workflow emit events to the agent that runs it. It costs no command and no history.
//
// Only the first execution of a workflow task emits events, never a replay, unless WithReplays asks for that. A task
// that Temporal does not accept is executed again, and then emits again: events are emitted at least once.
package emit

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
)

type (
	key        struct{}
	replaysKey struct{}
)

// With is a context whose workflow emits to a function.
func With(ctx workflow.Context, to api.Emit) workflow.Context {
	return workflow.WithValue(ctx, key{}, to)
}

// WithReplays is a context whose workflow emits in a replay, too.
func WithReplays(ctx workflow.Context) workflow.Context {
	return workflow.WithValue(ctx, replaysKey{}, true)
}

// Listening reports whether events are emitted now: somebody takes them, and this is no replay that emits none.
func Listening(ctx workflow.Context) bool {
	return ctx.Value(key{}) != nil && (!workflow.IsReplaying(ctx) || Replays(ctx))
}

// Replays reports whether WithReplays made the context.
func Replays(ctx workflow.Context) bool { return ctx.Value(replaysKey{}) != nil }

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
