package worker

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/failure"
)

// maxServerBackoff is the longest wait between two tries that is left to Temporal.
const maxServerBackoff = 10 * time.Second

// tries is how many tries the next start may make. A worker that has to ask before each start, or tries for others, makes one.
func (w *worker) maxAttempts() int {
	if w.TrialPause > 0 || !w.Standalone && (w.StartsHeld != "" || w.Spec.Start.RatePerSecond > 0) {
		return 1
	}
	return w.recovery().Tries(w.Failures, maxServerBackoff)
}

// replayAttempts walks the machine through the tries of a start that failed before its last, as they happened. The numbers
// of tries that were not heard of again are used up.
func (w *worker) replayAttempts(a *completion[api.StartResult]) {
	first := w.Machine.Incarnation
	failed, last := a.result.Failed, a.result.Incarnation
	if a.err != nil {
		failed, last = failedAttempts(a.err), 0
		if n := len(failed); n > 0 && isAttemptFailure(a.err) { // the last one is the failure itself
			last, failed = failed[n-1].Incarnation, failed[:n-1]
		}
		if failure.TimedOut(a.err) {
			w.HighestIncarnation = max(w.HighestIncarnation, first+int64(max(1, w.tasks.attempts))-1)
		}
	}
	for _, try := range failed {
		w.countStart(errRetried)
		w.Failures = w.recovery().Counted(w.Failures, 0)
		at := w.clampTime(try.Ended)
		w.transitionAt(lifecycle.StartFailed, try.Reason, at)
		w.Cause = api.CauseStartFailed
		w.countReplacement()
		if try.Wait == 0 {
			w.transitionAt(lifecycle.Start, try.Next, at)
			continue
		}
		w.transitionAt(lifecycle.Hold, try.Next, at)
		w.transitionAt(lifecycle.Release, backoffOver, w.clampTime(at.Add(try.Wait.D())))
	}
	w.Machine.Incarnation = max(w.Machine.Incarnation, last)
}

const backoffOver = "the wait is over"

// errRetried stands for the failure of a try that was followed by another.
var errRetried = errors.New("tried again")

// transitionAt carries out one transition at a time that has passed.
func (w *worker) transitionAt(kind lifecycle.EventKind, reason string, at time.Time) {
	machine, err := lifecycle.Next(w.Machine, lifecycle.Event{Kind: kind, Reason: reason}, at)
	if err != nil {
		panic(err)
	}
	w.Machine = machine
}

// clampTime is a host's time, held between what the worker knows to be before it and now: clocks differ.
func (w *worker) clampTime(t time.Time) time.Time {
	if t.Before(w.Machine.Since) {
		return w.Machine.Since
	}
	if now := w.now(); t.After(now) {
		return now
	}
	return t
}

// isAttemptFailure reports whether an error is the failure of a try, and not of what was to follow it.
func isAttemptFailure(err error) bool {
	return !failure.NotStarted(err) && !failure.TimedOut(err) && !temporal.IsCanceledError(err) && !isSuperseded(err)
}

func isSuperseded(err error) bool {
	_, is := failure.Superseded(err)
	return is
}

// failedAttempts are the tries that an error of a start tells of.
func failedAttempts(err error) []api.FailedAttempt {
	var tries api.FailedAttempts
	var app *temporal.ApplicationError
	if errors.As(err, &app) && app.HasDetails() && app.Details(&tries) == nil && len(tries.Attempts) > 0 {
		return tries.Attempts
	}
	var timeout *temporal.TimeoutError
	if errors.As(err, &timeout) && timeout.HasLastHeartbeatDetails() && timeout.LastHeartbeatDetails(&tries) == nil {
		return tries.Attempts
	}
	return nil
}
