package cli

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/tempool/tempool/api"
)

// poolsAtOnce bounds how many pools are asked at one time; each asks its workers at once, too.
const poolsAtOnce = 4

func (a *app) psCommand() *cobra.Command {
	return a.controlPlaneCommand(&cobra.Command{
		Use:   "ps [POOL]",
		Short: "Show the workers of a pool, or of all pools",
		Long: `Show every worker of a pool, or of all pools: its state, what it has served and uses, where it runs and who holds it.

The first line also says whether the hosts' gateways reach Temporal, as far as ctl reaches the gateways.

WHY says what keeps a worker out of service; ctl pool status POOL shows the whole of it.`,
		Example: `  ctl ps
  ctl ps python
  ctl ps python -o json | jq '.workers[] | select(.state != "ready")'`,
		Args:              atMostOne(argPool),
		ValidArgsFunction: a.completePools,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		return a.views(ctx, cp, args, a.addControlPlane, writeWorkers)
	})
}

func (a *app) statsCommand() *cobra.Command {
	return a.controlPlaneCommand(&cobra.Command{
		Use:   "stats [POOL]",
		Short: "Show what the workers of a pool, or of all pools, use and have done",
		Long: `Show what each worker uses (memory of its whole process tree, processor, open files, threads; 100 % is one core) and what
it has done in all its life: requests, leases, restarts.`,
		Example: `  ctl workers stats
  ctl workers stats python
  ctl workers stats python -o json | jq '.workers[] | {id, peak_memory_bytes}'`,
		Args:              atMostOne(argPool),
		ValidArgsFunction: a.completePools,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		return a.views(ctx, cp, args, nil, writeStats)
	})
}

// views prints the pool that args name, or a list of all, with what add adds, if it is not nil.
func (a *app) views(ctx context.Context, cp controlPlane, args []string, add func(context.Context, []api.PoolWorkers), write func(io.Writer, []api.PoolWorkers) error) error {
	if len(args) == 1 {
		request, cancel := a.request(ctx)
		defer cancel()
		view, err := cp.Pool(args[0]).Workers(request)
		if err != nil {
			return err
		}
		if add != nil {
			add(ctx, []api.PoolWorkers{view})
		}
		return a.printResult(view, func(w io.Writer) error { return write(w, []api.PoolWorkers{view}) })
	}
	views, failed := a.allViews(ctx, cp)
	if add != nil {
		add(ctx, views)
	}
	if len(views) > 0 || failed == nil {
		if err := a.printResult(views, func(w io.Writer) error { return write(w, views) }); err != nil {
			return err
		}
	}
	return failed
}

// allViews is every running pool that answers, by name, and the failures of those that do not.
func (a *app) allViews(ctx context.Context, cp controlPlane) ([]api.PoolWorkers, error) {
	names, err := a.poolNames(ctx, cp)
	if err != nil {
		return nil, err
	}
	views := make([]*api.PoolWorkers, len(names))
	failures := make([]error, len(names))
	a.forEachPool(names, func(i int, name string) {
		request, cancel := a.request(ctx)
		defer cancel()
		view, err := cp.Pool(name).Workers(request)
		switch {
		case err == nil:
			views[i] = &view
		case !errors.Is(err, api.ErrPoolNotFound): // one that ended meanwhile is no failure
			failures[i] = err
		}
	})
	answered := []api.PoolWorkers{}
	for _, view := range views {
		if view != nil {
			answered = append(answered, *view)
		}
	}
	return answered, errors.Join(failures...)
}

// poolNames names the running pools in order.
func (a *app) poolNames(ctx context.Context, cp controlPlane) ([]string, error) {
	request, cancel := a.request(ctx)
	defer cancel()
	names, err := cp.ListPools(request)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// forEachPool calls do for every pool, a few at a time.
func (a *app) forEachPool(names []string, do func(i int, name string)) {
	var group errgroup.Group
	group.SetLimit(poolsAtOnce)
	for i, name := range names {
		group.Go(func() error {
			do(i, name)
			return nil
		})
	}
	// do has no error to give.
	_ = group.Wait()
}
