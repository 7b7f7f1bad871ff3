package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// A start that fails is tried again by Temporal, where the recovery policy asks for a short wait only: a program that cannot start
// would else fill histories with ten events a try. What was tried is told in the end, and retraced then.

// shortWait is the longest wait between two tries that is left to Temporal.
const shortWait = 10 * time.Second

// tries is how many tries the next start may make. A worker that has to ask before each start, or tries for others, makes one.
func (w *worker) tries() int {
	if w.TrialPause > 0 || !w.Orphan && (w.Held != "" || w.Spec.Start.RatePerSecond > 0) {
		return 1
	}
	return w.recovery().Tries(w.Failures, shortWait)
}

// retrace walks the machine through the tries of a start that failed before its last, as they happened. The numbers
// of tries that were not heard of again are used up.
func (w *worker) retrace(a *answer[api.StartResult]) {
	first := w.Machine.Incarnation
	failed, last := a.result.Failed, a.result.Incarnation
	if a.err != nil {
		failed, last = failedTries(a.err), 0
		if n := len(failed); n > 0 && wasTried(a.err) { // the last one is the failure itself
			last, failed = failed[n-1].Incarnation, failed[:n-1]
		}
		if timedOut(a.err) {
			w.Reached = max(w.Reached, first+int64(max(1, w.work.tries))-1)
		}
	}
	for _, try := range failed {
		w.tally(errTried)
		w.Failures = w.recovery().Counted(w.Failures, 0)
		at := w.clamped(try.Ended)
		w.at(lifecycle.StartFailed, try.Reason, at)
		w.Cause = api.CauseStartFailed
		w.replaced()
		if try.Wait == 0 {
			w.at(lifecycle.Start, try.Next, at)
			continue
		}
		w.at(lifecycle.Hold, try.Next, at)
		w.at(lifecycle.Release, waitOver, w.clamped(at.Add(try.Wait.D())))
	}
	w.Machine.Incarnation = max(w.Machine.Incarnation, last)
}

const waitOver = "the wait is over"

// errTried stands for the failure of a try that was followed by another.
var errTried = errors.New("tried again")

// at carries out one transition at a time that has passed.
func (w *worker) at(kind lifecycle.EventKind, reason string, at time.Time) {
	machine, err := lifecycle.Next(w.Machine, lifecycle.Event{Kind: kind, Reason: reason}, at)
	if err != nil {
		panic(err)
	}
	w.Machine = machine
}

// clamped is a host's time, held between what the worker knows to be before it and now: clocks differ.
func (w *worker) clamped(t time.Time) time.Time {
	if t.Before(w.Machine.Since) {
		return w.Machine.Since
	}
	if now := w.now(); t.After(now) {
		return now
	}
	return t
}

// wasTried reports whether an error is the failure of a try, and not of what was to follow it.
func wasTried(err error) bool {
	return !neverStarted(err) && !timedOut(err) && !temporal.IsCanceledError(err) && !isSuperseded(err)
}

func isSuperseded(err error) bool {
	_, is := superseded(err)
	return is
}

// failedTries are the tries that an error of a start tells of.
func failedTries(err error) []api.FailedAttempt {
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
