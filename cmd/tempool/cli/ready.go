package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// agentCheckInterval is how long workers may make no progress before tempool checks whether an agent can start them.
const agentCheckInterval = 3 * time.Second

// readyWait is a wait for workers to be in service.
type readyWait struct {
	startTracker
	pool    string
	program spec.Pool
	limit   time.Duration

	agentsChecked time.Time
	progress      startProgress
	agentHint     string
}

// awaitReady waits until every worker that w tracks is in service. It fails early if a worker cannot start.
func (a *app) awaitReady(ctx context.Context, cp controlPlane, w *readyWait) error {
	a.checkAgents(ctx, cp, w, true)
	err := a.await(ctx, w.limit, func(ctx context.Context) (bool, error) {
		status, err := cp.Pool(w.pool).Status(ctx)
		if err != nil {
			if ctx.Err() != nil { // the limit
				return false, err
			}
			a.showProgress(w.pool + ": waiting for an agent to answer")
			a.checkAgents(ctx, cp, w, false)
			return false, err
		}
		if status.Stopping {
			return false, api.Errorf(api.CodeDraining,
				"pool %s is stopping because a user stopped it; start it again once it has stopped", w.pool)
		}
		w.progress = w.update(status)
		if len(w.progress.failing) > 0 {
			return false, a.startFailure(ctx, cp, w.pool, w.progress.failing[0])
		}
		a.showProgress(w.progress.line(w.pool))
		if !w.progress.done() {
			a.checkAgents(ctx, cp, w, false)
		}
		return w.progress.done(), nil
	})
	if errors.Is(err, errWaitTimeout) {
		return notReadyError(w.pool, w.limit, w.progress, w.agentHint)
	}
	return err
}

// checkAgents warns, once for each cause, if no agent can start the workers. The first check warns only if no agent
// runs at all: an agent that just started may not poll for workers yet.
func (a *app) checkAgents(ctx context.Context, cp controlPlane, w *readyWait, first bool) {
	if !first && a.now().Sub(w.agentsChecked) < agentCheckInterval {
		return
	}
	w.agentsChecked = a.now()
	request, cancel := a.request(ctx)
	defer cancel()
	agents, err := cp.Agents(request, w.program)
	if err != nil || (first && agents.Workflows > 0) {
		return // the check only adds a hint
	}
	hint := agentHint(agents, a.options.Address, w.program)
	if hint != "" && hint != w.agentHint {
		a.warn(hint)
	}
	w.agentHint = hint
}

// startFailure returns the error for a worker that cannot start. Its reason is that of the last failed incarnation,
// which includes the end of the log.
func (a *app) startFailure(ctx context.Context, cp controlPlane, pool string, w failingWorker) error {
	reason := w.Reason
	if transitions, err := cp.Pool(pool).History(ctx, w.Slot); err == nil {
		if failure, found := lastFailure(transitions); found {
			reason = failure.Reason
		}
	}
	return cannotStartError(pool, w, reason)
}

// lastFailure returns the newest unplanned end of an incarnation.
func lastFailure(transitions []lifecycle.Transition) (lifecycle.Transition, bool) {
	for i := len(transitions) - 1; i >= 0; i-- {
		if t := transitions[i]; t.To == lifecycle.Failed || t.To == lifecycle.Killed || t.To == lifecycle.Finished {
			return t, true
		}
	}
	return lifecycle.Transition{}, false
}

// cannotStartError is the error for a worker that does not get into service. reason may end with several lines of log.
func cannotStartError(pool string, w failingWorker, reason string) error {
	what := fmt.Sprintf("failed %d times without becoming ready", w.failures)
	next := fmt.Sprintf("The pool keeps retrying. Once the cause is fixed, tempool workers restart %s retries at "+
		"once (tempool "+
		"pool apply -f FILE if the file has changed); tempool pool stop %[1]s gives up", pool)
	if w.Resting {
		what = "has given up (" + string(w.State) + ")"
		next = fmt.Sprintf("Fix the cause, then run tempool pool apply -f FILE or tempool workers restart %s",
			api.WorkerName(pool, w.Slot))
	}
	return api.Errorf(api.CodeStartFailed, "worker %s cannot start, it %s: %s\n%s",
		api.WorkerName(pool, w.Slot), what, strings.TrimRight(reason, "\n"), next)
}

// notReadyError is the error of awaitReady after its limit.
func notReadyError(pool string, limit time.Duration, p startProgress, hint string) error {
	text := fmt.Sprintf("pool %s is not ready after %s", pool, formatDuration(limit))
	if p.wanted > 0 { // the pool has answered
		text += fmt.Sprintf(" (%d of %d workers are)", p.ready, p.wanted)
	}
	if len(p.waiting) > 0 { // the first stands for all; tempool ps lists the others
		w := p.waiting[0]
		text += fmt.Sprintf("; %s is %s", api.WorkerName(pool, w.Slot), w.State)
		if w.Reason != "" {
			text += ": " + oneLine(w.Reason, 200)
		}
	}
	switch {
	case hint != "":
	case p.wanted == 0: // Temporal lists agents for a while after they stopped
		hint = "the pool does not answer, so probably no agent is running; start one with: tempool agent"
	default:
		hint = fmt.Sprintf("it keeps starting; run tempool pool status %s to follow, or tempool pool stop %s to give "+
			"up", pool, pool)
	}
	return api.Errorf(codeTimeout, "%s; %s", text, hint)
}

// agentHint says what to do if agents are missing; it is empty if enough agents poll.
func agentHint(agents tempool.Agents, address string, pool spec.Pool) string {
	placement, start := cmp.Or(pool.Placement, api.DefaultPlacement), "start one with: tempool agent"
	if address != "" {
		start += " --address " + address
	}
	switch {
	case agents.Workflows == 0:
		return "no agent is running; " + start
	case agents.Placement > 0:
		return ""
	case pool.Kind == spec.KindFunction:
		return fmt.Sprintf("no agent with free capacity and placement %q has the function %q; start an agent whose program "+
			"registers it with worker.Register, or raise its --capacity", placement, pool.Function)
	default:
		return fmt.Sprintf("no agent with free capacity takes workers with placement %q; %s --labels %s, or raise "+
			"--capacity of an agent", placement, start, placement)
	}
}
