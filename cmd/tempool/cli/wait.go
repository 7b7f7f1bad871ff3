package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/ready"
	"github.com/tempool/tempool/internal/sleep"
)

// waitFlags are the flags of a command that waits for its result.
type waitFlags struct {
	skip  bool
	limit time.Duration
}

// flags defines --no-wait and --wait-timeout; until completes "to wait".
func (w *waitFlags) flags(c *cobra.Command, limit time.Duration, until string) {
	c.Flags().BoolVar(&w.skip, "no-wait", false, "return immediately instead of waiting "+until)
	c.Flags().DurationVar(&w.limit, "wait-timeout", limit, "how long to wait "+until)
	checkFlags(c, func(*cobra.Command) error {
		if w.limit <= 0 {
			return usagef("--wait-timeout is %s; give a duration above zero, or --no-wait", w.limit)
		}
		return nil
	})
}

// awaitEnd waits until wait returns, for at most limit as await does, and calls show at intervals.
func (a *app) awaitEnd(ctx context.Context, limit time.Duration, wait func(context.Context) error,
	show func(context.Context), late func() string) error {
	waiting, cancel := context.WithCancel(ctx)
	defer time.AfterFunc(limit, cancel).Stop() // a deadline would have the SDK ask again and again just before it
	shown := sleep.Done(func() {
		for first := true; first || sleep.For(waiting.Done(), a.pollInterval); first = false {
			show(waiting)
		}
	})
	err := wait(waiting)
	ended := waiting.Err()
	cancel()
	<-shown
	switch {
	case err == nil || ended == nil:
		return err
	case ctx.Err() != nil: // wait's error may be Temporal's
		return ctx.Err()
	}
	return api.Errorf(codeTimeout, "%s", late())
}

// await polls until poll returns true. It polls again after CodeUnavailable, since agents may restart. It returns any
// other error of poll, the error of ctx, or after limit codeTimeout with the message of late, which says what to do.
func (a *app) await(ctx context.Context, limit time.Duration, poll func(context.Context) (bool, error),
	late func() string) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		request, cancel := a.request(bounded)
		done, err := poll(request)
		cancel()
		if err != nil && bounded.Err() == nil && api.CodeOf(err) != api.CodeUnavailable {
			return err
		}
		if err == nil && done {
			return nil
		}
		if !sleep.For(bounded.Done(), a.pollInterval) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return api.Errorf(codeTimeout, "%s", late())
		}
	}
}

// awaitReady waits until every worker of a pool that t tracks is in service. It fails early if a worker cannot start.
// It warns only if no agent runs at all: one that has just started may not ask for workers yet.
func (a *app) awaitReady(ctx context.Context, cp controlPlane, pool string, limit time.Duration,
	t *ready.Tracker) error {
	if hint := a.noAgent(ctx, cp); hint != "" {
		a.warn(hint)
	}
	var progress ready.Progress
	return a.await(ctx, limit, func(ctx context.Context) (bool, error) {
		status, err := cp.Pool(pool).Status(ctx)
		if err != nil {
			if ctx.Err() == nil { // not the limit
				a.showProgress(pool + ": waiting for an agent to answer")
			}
			return false, err
		}
		if status.Stopping {
			return false, api.Errorf(api.CodeDraining,
				"pool %s is stopping because a user stopped it; start it again once it has stopped", pool)
		}
		progress = t.Update(status)
		if len(progress.Failing) > 0 {
			return false, a.startFailure(ctx, cp.Pool(pool), progress.Failing[0])
		}
		a.showProgress(progress.Line(pool))
		return progress.Done(), nil
	}, func() string {
		hint := a.noAgent(ctx, cp)
		switch {
		case hint != "":
		case progress.Wanted == 0: // Temporal lists agents for a while after they stopped
			hint = "the pool does not answer, so probably no agent is running; start one with: tempool agent"
		default:
			hint = fmt.Sprintf("it keeps starting; run tempool pool status %s to follow, or tempool pool stop %[1]s to give up",
				pool)
		}
		return progress.Summary(pool, limit) + "; " + hint
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
