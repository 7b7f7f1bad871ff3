package loop

import (
	"time"

	"go.temporal.io/sdk/workflow"
)

// The server suggests to continue as new when a history is long, and terminates a run whose history is far longer.
// Usually the run continues when nothing is in progress that the next one would have to start again. If there always is
// something, or somebody sends signals without end, it still continues at twice the suggested length.

const (
	// maxExcess bounds by how many history events a run may be longer than the server suggested when the workflow first
	// saw it.
	maxExcess = 8192
	// idleTimeout is how long an overlong run waits for handlers of updates and for signals to other workflows.
	idleTimeout = 5 * time.Second
)

// lengthLimit is how long the history of a run may get.
type lengthLimit struct {
	// suggestedAt and suggestedSize are the length in events and the size in bytes at which the run saw the server's
	// suggestion; 0 before.
	suggestedAt, suggestedSize int
	overdue                    bool // the run has seen that it is overlong
	idle                       Timer
}

// crossed reports whether the history has crossed one of the two lengths since the run last looked.
func (h *lengthLimit) crossed(ctx workflow.Context) bool {
	if h.suggestedAt == 0 {
		return workflow.GetInfo(ctx).GetContinueAsNewSuggested()
	}
	return !h.overdue && h.isOver(ctx)
}

func (h *lengthLimit) isOver(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return h.suggestedAt > 0 && (info.GetCurrentHistoryLength() >= h.suggestedAt+min(h.suggestedAt, maxExcess) ||
		h.suggestedSize > 0 && info.GetCurrentHistorySize() >= 2*h.suggestedSize)
}

// observeLength notes the lengths that the history has crossed.
func (l *Loop) observeLength() {
	info := workflow.GetInfo(l.Ctx)
	if l.length.suggestedAt == 0 && info.GetContinueAsNewSuggested() {
		l.length.suggestedAt, l.length.suggestedSize = max(1, info.GetCurrentHistoryLength()), info.GetCurrentHistorySize()
	}
	l.length.overdue = l.length.isOver(l.Ctx)
}

// IsOverdue reports whether the history is so far past the server's suggestion that the run is about to continue as new
// whatever is in progress. Handlers of updates then fail with a code that callers retry. It changes nothing, so
// validators may call it.
func (l *Loop) IsOverdue() bool { return l.length.overdue }

// MustContinue reports whether the run has to continue as new now, whatever is under way: it is overdue, and handlers
// and signals have ended or had time to.
func (l *Loop) MustContinue() bool {
	l.observeLength()
	if !l.length.overdue {
		return false
	}
	if l.isIdle() || l.length.idle.Ended() {
		return true
	}
	if !l.length.idle.Running() {
		l.length.idle.Start(l, idleTimeout, "before an overlong run continues as new")
	}
	return false
}
