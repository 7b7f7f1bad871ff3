package pool

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/tracecontext"
)

// emitFailure emits that a call failed after a worker was chosen for it. A caller that left is not a failure.
func (c *Call) emitFailure(err error, now time.Time) {
	u, code := c.upstream, api.CodeOf(err)
	if log := u.pool.dispatcher.config.Events; code != api.CodeCancelled && log.Wants(api.EventCallFailed) {
		log.Add(api.EventCallFailed, api.WorkerSource(u.worker), now, api.CallEvent{
			Host: u.pool.dispatcher.config.HostID, Incarnation: u.incarnation, Method: c.method, Code: code,
			Started: started(err), Reason: err.Error(), TraceID: c.traceID,
		})
	}
}

// emitNotReleased emits that the process ends without releasing a session.
func (u *upstream) emitNotReleased(session string, err error) {
	if log := u.pool.dispatcher.config.Events; log.Wants(api.EventSessionNotReleased) {
		log.Add(api.EventSessionNotReleased, api.WorkerSource(u.worker), time.Now(), api.SessionEvent{
			Host: u.pool.dispatcher.config.HostID, Session: session, Worker: u.worker, Incarnation: u.incarnation,
			Reason: shorten(err.Error()),
		})
	}
}

// emitRefusal emits that a call was refused before a worker had it.
func (p *poolState) emitRefusal(ctx context.Context, code api.Code, err error) {
	if log := p.dispatcher.config.Events; log.Wants(api.EventCallFailed) {
		log.Add(api.EventCallFailed, api.PoolSource(p.pool), time.Now(), api.CallEvent{
			Host: p.dispatcher.config.HostID, Code: code, Reason: err.Error(), TraceID: tracecontext.ID(ctx),
		})
	}
}
