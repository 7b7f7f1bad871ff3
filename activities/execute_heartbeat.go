package activities

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/tracecontext"
)

// maxCallHeartbeatInterval bounds the time between two heartbeats of a call, and so the delay of a cancellation.
const maxCallHeartbeatInterval = 2 * time.Second

// callHeartbeat sends heartbeats while a call runs, and cancels the call when Temporal answers that the activity was
// cancelled or has ended. While Temporal does not answer, the call continues.
type callHeartbeat struct {
	pool          *Pool
	log           *slog.Logger
	token         []byte
	cancelCall    context.CancelCauseFunc
	progress      atomic.Pointer[api.ExecuteProgress]
	beginRecorded atomic.Bool
	stop          func()
}

func startCallHeartbeat(ctx context.Context, p *Pool, cancelCall context.CancelCauseFunc) *callHeartbeat {
	info := activity.GetInfo(ctx)
	b := &callHeartbeat{pool: p, log: tracecontext.Logger(ctx, p.Logger), token: info.TaskToken, cancelCall: cancelCall}
	interval := maxCallHeartbeatInterval
	if info.HeartbeatTimeout > 0 {
		interval = min(interval, info.HeartbeatTimeout/3)
	}
	b.progress.Store(&api.ExecuteProgress{Host: p.Host})
	b.stop = repeat(ctx, interval, func(ctx context.Context) bool {
		if err := b.send(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn("heartbeat of a call failed; the call continues", "pool", p.Name, "error", err)
		}
		return true
	})
	return b
}

// begin records that the request is about to be sent, unless the call is idempotent. If it fails, the request must not
// be sent.
func (b *callHeartbeat) begin(progress api.ExecuteProgress, idempotent bool) error {
	b.progress.Store(&progress)
	if idempotent {
		return nil
	}
	b.beginRecorded.Store(true)
	if err := b.send(context.Background()); err != nil {
		return api.Errorf(api.CodeUnavailable, "call not sent: recording its start in Temporal failed: %w",
			err).After(time.Second)
	}
	return nil
}

// retract records that the request was not sent. If that fails, the next attempt assumes that it was.
func (b *callHeartbeat) retract() {
	b.progress.Store(&api.ExecuteProgress{Host: b.pool.Host})
	if err := b.send(context.Background()); err != nil {
		b.log.Warn("cannot record that a call was not sent; Temporal will not retry it", "pool", b.pool.Name, "error", err)
	}
}

// send sends one heartbeat, and cancels the call if Temporal answers that nobody waits for it.
func (b *callHeartbeat) send(ctx context.Context) error {
	err := sendHeartbeat(ctx, b.pool.Temporal, b.token, heartbeatTimeout, b.progress.Load())
	for _, ended := range []error{errCancelRequested, errActivityEnded} {
		if errors.Is(err, ended) {
			b.cancelCall(ended)
		}
	}
	return err
}
