package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/internal/sleep"
)

// HeartbeatClient sends heartbeats; a client.Client is one.
type HeartbeatClient interface {
	RecordActivityHeartbeat(ctx context.Context, taskToken []byte, details ...any) error
}

const (
	// heartbeatsPerTimeout is how many intervals the time-out of an activity has. One heartbeat takes an interval at most,
	// so three in a row must fail until Temporal considers the agent dead; fewer where the time-out is below 4 s.
	heartbeatsPerTimeout = 4
	// leastHeartbeatInterval is the least time between two heartbeats.
	leastHeartbeatInterval = time.Second
	// heartbeatTimeout bounds one heartbeat, whatever its interval.
	heartbeatTimeout = 5 * time.Second
)

var (
	errCancelRequested = errors.New("the activity was cancelled")
	errActivityEnded   = errors.New("the activity has timed out, or its workflow is closed")
)

// sendHeartbeat sends one heartbeat. errCancelRequested and errActivityEnded are Temporal's answer that nobody waits
// for the activity; any other error says nothing about that. The answer must come within an interval.
func sendHeartbeat(ctx context.Context, client HeartbeatClient, token []byte, interval time.Duration,
	details ...any) error {
	ctx, cancel := context.WithTimeout(ctx, min(interval, heartbeatTimeout))
	defer cancel()
	err := client.RecordActivityHeartbeat(ctx, token, details...)
	_, notFound := errors.AsType[*serviceerror.NotFound](err)
	switch {
	case temporal.IsCanceledError(err):
		return errCancelRequested
	case notFound:
		return fmt.Errorf("%w: %w", errActivityEnded, err)
	// affects the next attempt only
	case errors.Is(err, activity.ErrActivityPaused), errors.Is(err, activity.ErrActivityReset):
		return nil
	}
	return err
}

// Heartbeating is an activity that sends heartbeats until it returns. Without them Temporal would notice only at the
// activity's start-to-close time-out that its task has not reached this agent, or that this agent has died with it.
func Heartbeating[A, R any](client HeartbeatClient,
	do func(context.Context, A) (R, error)) func(context.Context, A) (R, error) {
	return func(ctx context.Context, argument A) (R, error) {
		defer startHeartbeat(ctx, client)()
		return do(ctx, argument)
	}
}

// startHeartbeat sends heartbeats until stop is called, as many as the activity's time-out needs.
// The first one is not sent at once: Temporal counts from the start of the activity, and most end before. ctx, the
// activity's, is cancelled when Temporal answers that nobody waits for the activity. The SDK's own heartbeats also
// cancel it when Temporal does not answer for a few seconds, which must not end a process that starts.
func startHeartbeat(ctx context.Context, client HeartbeatClient) (stop func()) {
	info := activity.GetInfo(ctx)
	interval := max(info.HeartbeatTimeout/heartbeatsPerTimeout, leastHeartbeatInterval)
	return repeat(ctx, interval, func(sending context.Context) (again bool) {
		err := sendHeartbeat(sending, client, info.TaskToken, interval)
		switch {
		case sending.Err() != nil:
			return false
		case errors.Is(err, errCancelRequested), errors.Is(err, errActivityEnded):
			activity.RecordHeartbeat(ctx) // gets the same answer, with which the SDK cancels ctx
			return false
		case err != nil:
			activity.GetLogger(ctx).Warn("heartbeat failed; the activity continues", "error", err)
		}
		return true
	})
}

// repeat calls send once per interval, on another goroutine, until that returns false or stop is called, which ends the
// ctx of send and waits for it.
func repeat(ctx context.Context, interval time.Duration, send func(context.Context) (again bool)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var sending sync.WaitGroup
	sending.Go(func() {
		for range sleep.Ticks(ctx.Done(), interval) {
			if !send(ctx) {
				return
			}
		}
	})
	return func() {
		cancel()
		sending.Wait()
	}
}
