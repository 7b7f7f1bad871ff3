package activities

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
)

// Heartbeats is where heartbeats go: a client of Temporal.
type Heartbeats interface {
	RecordActivityHeartbeat(ctx context.Context, taskToken []byte, details ...any) error
}

// callHeartbeat heartbeats while a call runs, and ends the call when Temporal says that nobody waits for it any more. That Temporal does not
// answer ends nothing.
type callHeartbeat struct {
	pool          *Pool
	token         []byte
	cancel        context.CancelCauseFunc
	interval      time.Duration
	progress      atomic.Pointer[api.ExecuteProgress]
	beginRecorded atomic.Bool // that the call began
	cancelLoop    context.CancelFunc
	done          chan struct{}
}

func newCallHeartbeat(ctx context.Context, p *Pool, cancel context.CancelCauseFunc) *callHeartbeat {
	info := activity.GetInfo(ctx)
	b := &callHeartbeat{pool: p, token: info.TaskToken, cancel: cancel, interval: maxCallHeartbeatInterval, done: make(chan struct{})}
	if info.HeartbeatTimeout > 0 {
		b.interval = min(b.interval, info.HeartbeatTimeout/3)
	}
	b.progress.Store(&api.ExecuteProgress{Host: p.Host})
	ctx, b.cancelLoop = context.WithCancel(ctx)
	go func() {
		defer close(b.done)
		ticker := time.NewTicker(b.interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err := b.send(ctx); err != nil && ctx.Err() == nil {
				p.Logger.Warn("a heartbeat of a call was not taken; the call goes on", "pool", p.Name, "error", err)
			}
		}
	}()
	return b
}

// begin records that the worker is about to see the request, unless seeing it twice does no harm. A call that this cannot be
// recorded of is not sent.
func (b *callHeartbeat) begin(progress api.ExecuteProgress, idempotent bool) error {
	b.progress.Store(&progress)
	if idempotent {
		return nil
	}
	b.beginRecorded.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), callHeartbeatTimeout)
	defer cancel()
	if err := b.send(ctx); err != nil {
		return api.Errorf(api.CodeUnavailable, "Temporal could not be told that the call begins, so it was not sent: %w", err).After(time.Second)
	}
	return nil
}

// retract records that the request was not sent after all. If it cannot, the next attempt takes the call for begun.
func (b *callHeartbeat) retract() {
	b.progress.Store(&api.ExecuteProgress{Host: b.pool.Host})
	ctx, cancel := context.WithTimeout(context.Background(), callHeartbeatTimeout)
	defer cancel()
	if err := b.send(ctx); err != nil {
		b.pool.Logger.Warn("that a call was not sent could not be told", "pool", b.pool.Name, "error", err)
	}
}

// beat sends one heartbeat. An answer that says that nobody waits for the call ends it.
func (b *callHeartbeat) send(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callHeartbeatTimeout)
	defer cancel()
	err := b.pool.Temporal.RecordActivityHeartbeat(ctx, b.token, b.progress.Load())
	var cancelled *temporal.CanceledError
	var gone *serviceerror.NotFound
	switch {
	case errors.As(err, &cancelled):
		b.cancel(errCancelRequested)
		return fmt.Errorf("%w", errCancelRequested)
	case errors.As(err, &gone):
		b.cancel(errActivityEnded)
		return fmt.Errorf("%w: %w", errActivityEnded, err)
	case errors.Is(err, activity.ErrActivityPaused), errors.Is(err, activity.ErrActivityReset): // for the next attempt, not this one
		return nil
	}
	return err
}

func (b *callHeartbeat) stop() {
	b.cancelLoop()
	<-b.done
}
