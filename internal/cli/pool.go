package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
)

func (a *app) poolCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "pool",
		Short: "Start, stop, change and list pools",
		Example: `  ctl pool start -f pool.toml
  ctl pool status python
  ctl pool stop python`,
	},
		a.poolStartCommand(), a.poolStopCommand(), a.poolStatusCommand(), a.poolListCommand(), a.poolScaleCommand(), a.poolApplyCommand(),
	)
}

func (a *app) poolStatusCommand() *cobra.Command {
	return a.controlPlaneCommand(&cobra.Command{
		Use:   "status POOL",
		Short: "Show a pool and its workers, with the whole reason of each that does not serve",
		Example: `  ctl pool status python
  ctl pool status python -o json | jq .ready`,
		Args:              exactly(argPool),
		ValidArgsFunction: a.completePools,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		request, cancel := a.request(ctx)
		defer cancel()
		view, err := cp.Pool(args[0]).Workers(request)
		if err != nil {
			return err
		}
		return a.printResult(view, func(w io.Writer) error { return writeStatus(w, view) })
	})
}

// poolSummary is one pool in ctl pool list.
type poolSummary struct {
	Pool        string       `json:"pool"`
	Size        int          `json:"size"`
	Ready       int          `json:"ready"`
	SpecVersion int64        `json:"spec_version"`
	Stopping    bool         `json:"stopping,omitempty"`
	Rollout     *api.Rollout `json:"rollout,omitempty"`
	// Error says why the pool could not be asked; the numbers are 0 then.
	Error string `json:"error,omitempty"`
}

func (a *app) poolListCommand() *cobra.Command {
	return a.controlPlaneCommand(&cobra.Command{
		Use:   "list",
		Short: "List the running pools",
		Example: `  ctl pool list
  ctl pool list -o json | jq -r '.[].pool'`,
		Args: noArguments,
	}, func(ctx context.Context, cp controlPlane, _ []string) error {
		names, err := a.poolNames(ctx, cp)
		if err != nil {
			return err
		}
		pools := make([]poolSummary, len(names))
		a.forEachPool(names, func(i int, name string) {
			request, cancel := a.request(ctx)
			defer cancel()
			pools[i] = summarize(name)(cp.Pool(name).Status(request))
		})
		return a.printResult(pools, func(w io.Writer) error { return writePools(w, pools) })
	})
}

func summarize(name string) func(api.PoolStatus, error) poolSummary {
	return func(s api.PoolStatus, err error) poolSummary {
		if err != nil {
			_, sentence := describe(err)
			return poolSummary{Pool: name, Error: sentence}
		}
		return poolSummary{Pool: name, Size: s.Size, Ready: s.Ready, SpecVersion: s.SpecVersion, Stopping: s.Stopping, Rollout: s.Rollout}
	}
}

func (a *app) poolScaleCommand() *cobra.Command {
	return a.controlPlaneCommand(&cobra.Command{
		Use:   "scale POOL N",
		Short: "Set the number of workers of a pool",
		Long: `Set the number of workers of a pool and return at once. New workers start in the background; those with the highest numbers
drain and end when there are to be fewer.`,
		Example: `  ctl pool scale python 8
  ctl pool scale python 2 -o json`,
		Args:              exactly(argPool, argCount),
		ValidArgsFunction: a.completePools,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		name := args[0]
		size, err := workerCount(args[1])
		if err != nil {
			return err
		}
		request, cancel := a.request(ctx)
		defer cancel()
		result, err := cp.Pool(name).Scale(request, size)
		if err != nil {
			return err
		}
		return a.printResult(result, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "pool %s: from %s to %d; ctl ps %s shows how they fare\n", name, plural(result.From, "worker"), result.To, name)
			return err
		})
	})
}
