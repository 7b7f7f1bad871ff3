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

// agentPatience is how long workers may not move before ctl looks whether an agent is there to move them.
const agentPatience = 3 * time.Second

func (a *app) poolStartCommand() *cobra.Command {
	var s spec.Spec
	var wait waiting
	c := a.leaf(&cobra.Command{
		Use:   "start -f FILE",
		Short: "Start a pool and wait until its workers are ready",
		Long: `Start the pool that a pool.toml describes and wait until all its workers are ready.

When a worker cannot start, ctl says which, why (with the end of its log) and what to do, and exits with 1; the pool itself
stays and goes on trying.`,
		Example: `  ctl pool start -f pool.toml
  ctl pool start -f pool.toml --wait-timeout 10m
  ctl pool start -f pool.toml --no-wait -o json`,
		Args: none,
	}, func(ctx context.Context, cp controlPlane, _ []string) error {
		if err := a.startPool(ctx, cp, s); err != nil {
			return err
		}
		view := api.PoolWorkers{Pool: s.Pool.Name, Size: s.Pool.Size, SpecVersion: 1, Workers: []api.Worker{}}
		if wait.skip {
			return a.print(view, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "pool %s was started; ctl ps %s shows how its workers fare\n", view.Pool, view.Pool)
				return err
			})
		}
		arrival := arrival{pool: view.Pool, placement: s.Pool.Placement, limit: wait.limit}
		if err := a.awaitArrival(ctx, cp, &arrival); err != nil {
			return err
		}
		request, cancel := a.request(ctx)
		defer cancel()
		view, err := cp.Pool(view.Pool).Workers(request)
		if err != nil {
			return err
		}
		return a.print(view, func(w io.Writer) error { return writeWorkers(w, []api.PoolWorkers{view}) })
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

// arrival is a wait for workers to come into service.
type arrival struct {
	startup
	pool      string
	placement string
	limit     time.Duration

	checked time.Time // when agents were last looked for
	latest  standing
	hint    string
}

// awaitArrival waits until every worker that is followed serves. It fails early when one will not.
func (a *app) awaitArrival(ctx context.Context, cp controlPlane, w *arrival) error {
	a.lookForAgents(ctx, cp, w, true)
	err := a.await(ctx, w.limit, func(ctx context.Context) (bool, error) {
		status, err := cp.Pool(w.pool).Status(ctx)
		if err != nil {
			a.show(w.pool + ": waiting for an agent to answer")
			a.lookForAgents(ctx, cp, w, false)
			return false, err
		}
		if status.Stopping {
			return false, api.Errorf(api.CodeDraining, "pool %s is stopping, as somebody asked it to; start it anew when it has ended", w.pool)
		}
		w.latest = w.look(status)
		if len(w.latest.stuck) > 0 {
			return false, a.whyStuck(ctx, cp, w.pool, w.latest.stuck[0])
		}
		a.show(w.latest.line(w.pool))
		if !w.latest.done() {
			a.lookForAgents(ctx, cp, w, false)
		}
		return w.latest.done(), nil
	})
	var up *timeUp
	if errors.As(err, &up) {
		return notReady(w.pool, w.limit, w.latest, w.hint)
	}
	return err
}

// lookForAgents warns, once for each cause, when nobody is there to start the workers. At first only the lack of any agent
// counts: one that has just come up may not have asked for workers yet.
func (a *app) lookForAgents(ctx context.Context, cp controlPlane, w *arrival, first bool) {
	if !first && a.now().Sub(w.checked) < agentPatience {
		return
	}
	w.checked = a.now()
	request, cancel := a.request(ctx)
	defer cancel()
	agents, err := cp.Agents(request, w.placement)
	if err != nil || (first && agents.Workflows > 0) {
		return // without an answer, only a hint is lost
	}
	hint := agentHint(agents, a.options.Address, cmp.Or(w.placement, api.DefaultPlacement))
	if hint != "" && hint != w.hint {
		a.warn(hint)
	}
	w.hint = hint
}

// whyStuck says why a worker cannot start: by the end of its last incarnation, which has the end of its log.
func (a *app) whyStuck(ctx context.Context, cp controlPlane, pool string, w stuck) error {
	reason := w.Reason
	if transitions, err := cp.Pool(pool).History(ctx, w.Slot); err == nil {
		if failure, found := lastFailure(transitions); found {
			reason = failure.Reason
		}
	}
	return cannotStart(pool, w, reason)
}
