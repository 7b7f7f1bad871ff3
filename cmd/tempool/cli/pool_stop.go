package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/ready"
)

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
