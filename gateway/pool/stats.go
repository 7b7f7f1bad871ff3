package pool

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/tracecontext"
)

// poolStats are the counts of one pool on this host.
type poolStats struct {
	calls, waits *histogram
	refused      [len(refusalCodes)]atomic.Int64
	notReleased  atomic.Int64            // sessions whose hook session.release failed
	workers      map[string]*workerStats // guarded by the pool's lock
}

// workerStats counts what one worker did on this host, over all of its incarnations here. Its methods take no lock.
type workerStats struct {
	requests, failed atomic.Int64
	took             atomic.Int64 // nanoseconds
	granted, refused atomic.Int64
	goneSince        time.Time // zero while the worker has an upstream. Guarded by the pool's lock.
}

// workerStatsExpiry is how long a worker without a process here is still reported: for a scrape or two, so that its
// last calls are counted, and long enough for it to restart after a crash and continue its counts.
const workerStatsExpiry = 5 * time.Minute

func (s *workerStats) add(failed bool, took time.Duration) {
	s.requests.Add(1)
	s.took.Add(int64(took))
	if failed {
		s.failed.Add(1)
	}
}

// refusalCodes are the codes with which a call of a pool is refused before a worker saw it, apart from invalid
// requests.
var refusalCodes = [...]api.Code{
	api.CodeQueueFull, api.CodeQueueTimeout, api.CodeRateLimited, api.CodeNoWorkers, api.CodeUnavailable,
	api.CodeDeadlineExceeded,
}

// countRefusal counts a call that did not start. It ignores a nil error, a nil pool, and errors that say nothing about
// the pool.
func (p *poolState) countRefusal(ctx context.Context, err error) {
	if err == nil || p == nil {
		return
	}
	code := api.CodeOf(err)
	if code == "" && errors.Is(err, context.DeadlineExceeded) {
		code = api.CodeDeadlineExceeded
	}
	if i := slices.Index(refusalCodes[:], code); i >= 0 {
		p.stats.refused[i].Add(1)
		p.emitRefusal(ctx, code, err)
	}
}

// workerStatsLocked returns the counts of a worker that gets an upstream.
func (p *poolState) workerStatsLocked(worker string, now time.Time) *workerStats {
	p.expireStatsLocked(now)
	s := p.stats.workers[worker]
	if s == nil {
		s = &workerStats{}
		p.stats.workers[worker] = s
	}
	s.goneSince = time.Time{}
	return s
}

// expireStatsLocked drops the counts of workers that have had no upstream for workerStatsExpiry.
func (p *poolState) expireStatsLocked(now time.Time) {
	here := make(map[string]bool, len(p.order))
	for _, u := range p.order {
		here[u.worker] = true
	}
	for worker, s := range p.stats.workers {
		switch {
		case here[worker]:
			s.goneSince = time.Time{}
		case s.goneSince.IsZero():
			s.goneSince = now
		case now.Sub(s.goneSince) >= workerStatsExpiry:
			delete(p.stats.workers, worker)
		}
	}
}

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
