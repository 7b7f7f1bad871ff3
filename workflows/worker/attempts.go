package worker

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// Temporal retries a failed start as long as the recovery policy asks for short delays: otherwise a program that cannot
// start would write ten history events for each attempt. The last attempt reports the earlier ones, and replayAttempts
// puts them into the history.

// maxServerBackoff is the longest delay between two attempts that Temporal waits for the worker.
const maxServerBackoff = 10 * time.Second

const backoffOver = "backoff over"

// replayAttempts moves the machine through the failed attempts before the last, at the times at which they happened.
// The numbers of attempts that were lost count as used. Attempts of a start that was stopped meanwhile are only
// counted.
func (s *starter) replayAttempts(r *loop.Result[api.StartResult]) {
	first := s.Machine.Incarnation
	failed, last := r.Value.Failed, r.Value.Incarnation
	if r.Err != nil {
		failed, last = failedAttempts(r.Err), 0
		if n := len(failed); n > 0 && counts(r.Err) && !failure.TimedOut(r.Err) { // the newest attempt is r.Err itself
			last, failed = failed[n-1].Incarnation, failed[:n-1]
		}
		if failure.TimedOut(r.Err) {
			s.HighestIncarnation = max(s.HighestIncarnation, first+int64(max(1, s.attempts))-1)
		}
	}
	for _, attempt := range failed {
		s.Starts++
		s.StartsFailed++
		if s.Machine.State != lifecycle.Starting { // it was stopped meanwhile, which ends its transitions
			continue
		}
		s.Failures = policy.Recovery(s.Spec.Recovery).CountFailure(s.Failures, 0)
		at := s.clampTime(attempt.Ended)
		s.transitionAt(lifecycle.Event{Kind: lifecycle.StartFailed, Reason: attempt.Reason}, at)
		s.endIncarnation(api.CauseStartFailed, IntentRecover, attempt.Reason)
		s.rotator.countReplacement()
		if attempt.Wait == 0 {
			s.transitionAt(lifecycle.Event{Kind: lifecycle.Start, Reason: attempt.Next}, at)
			continue
		}
		s.transitionAt(lifecycle.Event{Kind: lifecycle.Hold, Reason: attempt.Next}, at)
		s.transitionAt(lifecycle.Event{Kind: lifecycle.Release, Reason: backoffOver}, s.clampTime(at.Add(attempt.Wait.D())))
	}
	s.Machine.Incarnation = max(s.Machine.Incarnation, last)
}

// clampTime limits a host's time to the interval from the newest transition to now: clocks differ.
func (s *starter) clampTime(t time.Time) time.Time {
	if t.Before(s.Machine.Since) {
		return s.Machine.Since
	}
	if now := s.Now(); t.After(now) {
		return now
	}
	return t
}

// failedAttempts are the attempts in the details of a start's error.
func failedAttempts(err error) []api.FailedAttempt {
	var details api.FailedAttempts
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok && app.HasDetails() && app.Details(&details) == nil &&
		len(details.Attempts) > 0 {
		return details.Attempts
	}
	if timeout, ok := errors.AsType[*temporal.TimeoutError](err); ok && timeout.HasLastHeartbeatDetails() &&
		timeout.LastHeartbeatDetails(&details) == nil {
		return details.Attempts
	}
	return nil
}
