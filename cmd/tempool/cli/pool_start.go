package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/ready"
	"github.com/tempool/tempool/spec"
)

func (a *app) poolStartCommand() *cobra.Command {
	var wait waitFlags
	c := a.specCommand(&cobra.Command{
		Use:   "start -f FILE",
		Short: "Start a pool and wait until its workers are ready",
		Long: `Start the pool that a pool.toml describes and wait until all its workers are ready.

If a worker cannot start, tempool prints the worker, the reason with the end of its log, and the next step, and exits
with 1. The pool keeps running and retries.`,
		Example: `  tempool pool start -f pool.toml
  tempool pool start -f pool.toml --wait-timeout 10m
  tempool pool start -f pool.toml --no-wait -o json`,
	}, func(ctx context.Context, cp controlPlane, s spec.Spec) error {
		if err := a.startPool(ctx, cp, s); err != nil {
			return err
		}
		name := s.Pool.Name
		if wait.skip {
			view := api.PoolWorkers{Pool: name, Size: s.Scale.Clamp(s.Pool.Size), SpecVersion: 1, Workers: []api.Worker{}}
			return a.printMessage(view, "pool %s started; run tempool ps %[1]s to follow its workers", name)
		}
		if err := a.awaitReady(ctx, cp, name, wait.limit, &ready.Tracker{}); err != nil {
			return err
		}
		view, err := send(ctx, a, cp.Pool(name).Workers)
		if err != nil {
			return err
		}
		return a.printResult(view, func(text *strings.Builder) { a.writeWorkers(text, []api.PoolWorkers{view}) })
	})
	wait.flags(c, defaultWait, "until all workers are ready")
	return c
}

// startPool starts the pool's workflow, and warns if the namespace was not set up.
func (a *app) startPool(ctx context.Context, cp controlPlane, s spec.Spec) error {
	request, cancel := a.request(ctx)
	defer cancel()
	missing, err := cp.MissingSearchAttributes(request)
	if err == nil && len(missing) > 0 { // a user may lack the right to list them
		a.warn(fmt.Sprintf("namespace %s lacks the search attributes %s, so Temporal cannot search workers by them; run "+
			"tempool setup before you start pools",
			cp.Namespace(), strings.Join(missing, ", ")))
	}
	return cp.StartPool(request, api.PoolStart{Pool: s.Pool.Name, Spec: s})
}
