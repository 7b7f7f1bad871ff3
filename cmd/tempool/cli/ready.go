package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/ready"
)

// readyWait is a wait for workers to be in service.
type readyWait struct {
	ready.Tracker
	pool  string
	limit time.Duration
}

// awaitReady waits until every worker that w tracks is in service. It fails early if a worker cannot start. It warns
// only if no agent runs at all: one that has just started may not ask for workers yet.
func (a *app) awaitReady(ctx context.Context, cp controlPlane, w *readyWait) error {
	if hint := a.noAgent(ctx, cp); hint != "" {
		a.warn(hint)
	}
	var progress ready.Progress
	return a.await(ctx, w.limit, func(ctx context.Context) (bool, error) {
		status, err := cp.Pool(w.pool).Status(ctx)
		if err != nil {
			if ctx.Err() == nil { // not the limit
				a.showProgress(w.pool + ": waiting for an agent to answer")
			}
			return false, err
		}
		if status.Stopping {
			return false, api.Errorf(api.CodeDraining,
				"pool %s is stopping because a user stopped it; start it again once it has stopped", w.pool)
		}
		progress = w.Update(status)
		if len(progress.Failing) > 0 {
			return false, a.startFailure(ctx, cp.Pool(w.pool), progress.Failing[0])
		}
		a.showProgress(progress.Line(w.pool))
		return progress.Done(), nil
	}, func() string {
		hint := a.noAgent(ctx, cp)
		switch {
		case hint != "":
		case progress.Wanted == 0: // Temporal lists agents for a while after they stopped
			hint = "the pool does not answer, so probably no agent is running; start one with: tempool agent"
		default:
			hint = fmt.Sprintf("it keeps starting; run tempool pool status %s to follow, or tempool pool stop %[1]s to give up",
				w.pool)
		}
		return progress.Summary(w.pool, w.limit) + "; " + hint
	})
}

// startFailure is the error for a worker that does not get into service, with what to do.
func (a *app) startFailure(ctx context.Context, p pool, w ready.Failing) error {
	next := fmt.Sprintf("The pool keeps retrying. Once the cause is fixed, tempool workers restart %s retries at once "+
		"(tempool pool apply -f FILE if the file has changed); tempool pool stop %[1]s gives up", p.Name())
	if w.Resting {
		next = "Fix the cause, then run tempool pool apply -f FILE or tempool workers restart " +
			api.WorkerName(p.Name(), w.Slot)
	}
	return api.Errorf(api.CodeStartFailed, "%s\n%s", ready.CannotStart(ctx, p, p.Name(), w), next)
}

// noAgent says what to do if no agent runs; it is empty if one does, or if Temporal does not say.
func (a *app) noAgent(ctx context.Context, cp controlPlane) string {
	if agents, err := send(ctx, a, cp.Agents); err != nil || agents > 0 {
		return ""
	}
	hint := "no agent is running; start one with: tempool agent"
	if a.options.Address != "" {
		hint += " --address " + a.options.Address
	}
	return hint
}
