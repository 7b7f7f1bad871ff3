package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

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

// poolStopResult is the result of tempool pool stop.
type poolStopResult struct {
	Pool string `json:"pool"`
	api.PoolStopResult
	// Ended says that the pool has stopped; it is false with --no-wait.
	Ended bool `json:"ended"`
}

func (a *app) poolStopCommand() *cobra.Command {
	var reason string
	var wait waitFlags
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "stop POOL",
		Short: "Drain the workers of a pool and stop the pool",
		Long: `Stop a pool and wait until it has stopped. Its workers accept no new leases; calls in flight may finish
within rotation.drain_timeout; then the processes are stopped.`,
		Example: `  tempool pool stop python
  tempool pool stop python --reason "moved to another cluster" --no-wait`,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		name := args[0]
		stopping, err := ask(ctx, a, cp.Pool(name).Stop, reasonWithOperator(reason))
		if err != nil {
			return err
		}
		result := poolStopResult{Pool: name, PoolStopResult: stopping}
		if wait.skip {
			return a.printMessage(result, "pool %s is stopping; run tempool ps %[1]s to follow", name)
		}
		if err := a.awaitPoolEnd(ctx, cp, name, wait.limit); err != nil {
			return err
		}
		result.Ended = true
		return a.printMessage(result, "pool %s has stopped", name)
	})
	c.Flags().StringVar(&reason, "reason", "", "reason to record in the workers' histories")
	wait.flags(c, defaultWait, "until the pool has stopped")
	return c
}

// awaitPoolEnd waits until the pool's workflow has closed, and shows the remaining workers meanwhile.
func (a *app) awaitPoolEnd(ctx context.Context, cp controlPlane, name string, limit time.Duration) error {
	var left []api.RosterEntry
	return a.awaitEnd(ctx, limit, cp.Pool(name).Wait, func(ctx context.Context) {
		request, cancel := context.WithTimeout(ctx, min(a.timeout, time.Second))
		defer cancel()
		if status, err := cp.Pool(name).Status(request); err == nil {
			left = status.Workers
			a.showProgress(fmt.Sprintf("%s: %s remaining%s", name, plural(len(left), "worker"), ready.States(name, left)))
		}
	}, func() string {
		return fmt.Sprintf("pool %s has not stopped after %s%s; it continues to stop: run tempool ps %[1]s to follow, and "+
			"check that the agents of its workers are running", name, formatDuration(limit), ready.States(name, left))
	})
}
