package activities

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/policy/fromspec"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

// Start runs an incarnation until it is ready. A failure to become ready is typed start_failed, and superseded where a higher
// incarnation of the worker has been here. A start that may make several tries (StartRequest.Tries) is tried again by Temporal, on
// whichever host has room, after the wait of the recovery policy and under the next incarnation: what failed before is in its
// heartbeats, and comes with the result or with the last failure as tempool.FailedTries.
func (h *Host) Start(ctx context.Context, r api.StartRequest) (api.StartResult, error) {
	try := int(activity.GetInfo(ctx).Attempt)
	var before api.FailedAttempts
	if activity.HasHeartbeatDetails(ctx) {
		if err := activity.GetHeartbeatDetails(ctx, &before); err != nil {
			h.Logger.Warn("what a start had tried before is not known", "worker", r.Worker, "error", err)
		}
	}
	r.Incarnation += int64(try - 1)
	r.Failures, r.ShortLived = r.Failures+try-1, r.ShortLived || try > 1
	quiet := beat(ctx, before)
	began := time.Now()
	result, err := h.start(ctx, r)
	quiet()
	if err == nil {
		result.Failed = before.Attempts
		return result, nil
	}
	var failed *temporal.ApplicationError
	if !errors.As(err, &failed) { // it was called off
		return result, err
	}
	if failed.Type() == string(api.CodeSuperseded) {
		var newest api.SupersededDetails
		_ = failed.Details(&newest) // made by start
		newest.FailedAttempts = before
		return result, temporal.NewNonRetryableApplicationError(failed.Message(), failed.Type(), nil, newest)
	}
	one := api.FailedAttempt{Incarnation: r.Incarnation, Began: began.UTC(), Ended: time.Now().UTC(), Reason: failed.Message()}
	var wait time.Duration
	again := false
	if try < r.MaxAttempts {
		next := fromspec.Recovery(r.Spec).Next(r.Failures+1, one.Reason, rand.Float64())
		if again = next.Action == policy.Restart; again {
			wait = max(next.Delay, soonest)
			one.Wait, one.Next = spec.Duration(next.Delay), next.Reason
			h.observer().Decided(r.Worker, TryAgain)
			h.Logger.Info("a start is tried again", "worker", r.Worker, "incarnation", r.Incarnation, "wait", next.Delay, "reason", next.Reason)
		}
	}
	tries := api.FailedAttempts{Attempts: append(slices.Clone(before.Attempts), one)}
	activity.RecordHeartbeat(ctx, tries)
	return result, temporal.NewApplicationErrorWithOptions(failed.Message(), failed.Type(), temporal.ApplicationErrorOptions{
		NonRetryable: !again, NextRetryDelay: wait, Details: []any{tries},
	})
}

// soonest is the least wait that Temporal takes for one.
const soonest = time.Millisecond

// probation waits whether a process that has become ready stays alive. The end of ctx, or of the agent, ends it early: the process is
// there, and whoever called the start off has to stop it.
func (h *Host) probation(ctx context.Context, p *process.Process, lasts time.Duration) error {
	if lasts <= 0 {
		return nil
	}
	timer := time.NewTimer(lasts)
	defer timer.Stop()
	began := time.Now()
	select {
	case <-p.Done():
		return &process.Error{Code: process.CodeStartFailed, Message: fmt.Sprintf("it was ready, and ended %s later, within its probation of %s: %s",
			time.Since(began).Round(time.Millisecond), lasts.Round(time.Millisecond), p.Exit().Reason)}
	case <-timer.C:
	case <-ctx.Done():
	case <-h.Stopping:
	}
	return nil
}

// beat heartbeats until the returned function is called.
func beat(ctx context.Context, details ...any) (stop func()) {
	activity.RecordHeartbeat(ctx, details...)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(heartbeatEvery / 2)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				activity.RecordHeartbeat(ctx, details...)
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
