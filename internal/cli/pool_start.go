package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// agentCheckInterval is how long workers may not move before ctl looks whether an agent is there to move them.
const agentCheckInterval = 3 * time.Second

func (a *app) poolStartCommand() *cobra.Command {
	var s spec.Spec
	var wait waitFlags
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "start -f FILE",
		Short: "Start a pool and wait until its workers are ready",
		Long: `Start the pool that a pool.toml describes and wait until all its workers are ready.

When a worker cannot start, ctl says which, why (with the end of its log) and what to do, and exits with 1; the pool itself
stays and goes on trying.`,
		Example: `  ctl pool start -f pool.toml
  ctl pool start -f pool.toml --wait-timeout 10m
  ctl pool start -f pool.toml --no-wait -o json`,
		Args: noArguments,
	}, func(ctx context.Context, cp controlPlane, _ []string) error {
		if err := a.startPool(ctx, cp, s); err != nil {
			return err
		}
		view := api.PoolWorkers{Pool: s.Pool.Name, Size: s.Pool.Size, SpecVersion: 1, Workers: []api.Worker{}}
		if wait.skip {
			return a.printResult(view, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "pool %s was started; ctl ps %s shows how its workers fare\n", view.Pool, view.Pool)
				return err
			})
		}
		arrival := readyWait{pool: view.Pool, placement: s.Pool.Placement, limit: wait.limit}
		if err := a.awaitReady(ctx, cp, &arrival); err != nil {
			return err
		}
		request, cancel := a.request(ctx)
		defer cancel()
		view, err := cp.Pool(view.Pool).Workers(request)
		if err != nil {
			return err
		}
		return a.printResult(view, func(w io.Writer) error { return writeWorkers(w, []api.PoolWorkers{view}) })
	})
	a.specFile(c, &s)
	wait.flags(c, defaultWait, "until all workers are ready")
	return c
}

// startPool starts the pool's workflow and warns of a namespace that was not set up.
func (a *app) startPool(ctx context.Context, cp controlPlane, s spec.Spec) error {
	request, cancel := a.request(ctx)
	defer cancel()
	missing, err := cp.MissingSearchAttributes(request)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		a.warn(fmt.Sprintf("namespace %s lacks the search attributes %s, so workers cannot be searched for by them; run ctl setup before you start pools",
			cp.Namespace(), strings.Join(missing, ", ")))
	}
	return cp.StartPool(request, api.PoolStart{Pool: s.Pool.Name, Spec: s})
}

// readyWait is a wait for workers to come into service.
type readyWait struct {
	startTracker
	pool      string
	placement string
	limit     time.Duration

	agentsChecked time.Time // when agents were last looked for
	progress      startProgress
	agentHint     string
}

// awaitReady waits until every worker that is followed serves. It fails early when one will not.
func (a *app) awaitReady(ctx context.Context, cp controlPlane, w *readyWait) error {
	a.checkAgents(ctx, cp, w, true)
	err := a.await(ctx, w.limit, func(ctx context.Context) (bool, error) {
		status, err := cp.Pool(w.pool).Status(ctx)
		if err != nil {
			a.showProgress(w.pool + ": waiting for an agent to answer")
			a.checkAgents(ctx, cp, w, false)
			return false, err
		}
		if status.Stopping {
			return false, api.Errorf(api.CodeDraining, "pool %s is stopping, as somebody asked it to; start it anew when it has ended", w.pool)
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
	var up *waitTimeout
	if errors.As(err, &up) {
		return notReadyError(w.pool, w.limit, w.progress, w.agentHint)
	}
	return err
}

// checkAgents warns, once for each cause, when nobody is there to start the workers. At first only the lack of any agent
// counts: one that has just come up may not have asked for workers yet.
func (a *app) checkAgents(ctx context.Context, cp controlPlane, w *readyWait, first bool) {
	if !first && a.now().Sub(w.agentsChecked) < agentCheckInterval {
		return
	}
	w.agentsChecked = a.now()
	request, cancel := a.request(ctx)
	defer cancel()
	agents, err := cp.Agents(request, w.placement)
	if err != nil || (first && agents.Workflows > 0) {
		return // without an answer, only a hint is lost
	}
	hint := agentHint(agents, a.options.Address, cmp.Or(w.placement, api.DefaultPlacement))
	if hint != "" && hint != w.agentHint {
		a.warn(hint)
	}
	w.agentHint = hint
}

// startFailure says why a worker cannot start: by the end of its last incarnation, which has the end of its log.
func (a *app) startFailure(ctx context.Context, cp controlPlane, pool string, w failingWorker) error {
	reason := w.Reason
	if transitions, err := cp.Pool(pool).History(ctx, w.Slot); err == nil {
		if failure, found := lastFailure(transitions); found {
			reason = failure.Reason
		}
	}
	return cannotStartError(pool, w, reason)
}
