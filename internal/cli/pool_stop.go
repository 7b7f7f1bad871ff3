package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
)

// poolStopResult is the result of ctl pool stop.
type poolStopResult struct {
	Pool string `json:"pool"`
	api.PoolStopResult
	// Ended says that the pool has ended; false with --no-wait.
	Ended bool `json:"ended"`
}

func (a *app) poolStopCommand() *cobra.Command {
	var reason string
	var wait waitFlags
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "stop POOL",
		Short: "Stop a pool: drain its workers and end it",
		Long: `Stop a pool and wait until it has ended. Its workers take no new lease; what is in flight may finish within
rotation.drain_timeout; then their processes are stopped.`,
		Example: `  ctl pool stop python
  ctl pool stop python --reason "moved to another cluster" --no-wait`,
		Args:              exactly(argPool),
		ValidArgsFunction: a.completePools,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		result := poolStopResult{Pool: args[0]}
		var err error
		if result.PoolStopResult, err = a.stopPool(ctx, cp, args[0], reasonWithOperator(reason)); err != nil {
			return err
		}
		if !wait.skip {
			if err := a.awaitPoolEnd(ctx, cp, args[0], wait.limit); err != nil {
				return err
			}
			result.Ended = true
		}
		return a.printResult(result, func(w io.Writer) error {
			text := "pool %s is stopping; ctl ps %[1]s shows how far it is\n"
			if result.Ended {
				text = "pool %s has ended\n"
			}
			_, err := fmt.Fprintf(w, text, result.Pool)
			return err
		})
	})
	c.Flags().StringVar(&reason, "reason", "", "why, for the workers' histories")
	wait.flags(c, defaultWait, "until the pool has ended")
	return c
}

func (a *app) stopPool(ctx context.Context, cp controlPlane, name, reason string) (api.PoolStopResult, error) {
	request, cancel := a.request(ctx)
	defer cancel()
	return cp.Pool(name).Stop(request, reason)
}

// awaitPoolEnd waits until the pool's workflow has closed, and shows meanwhile which workers are still there.
func (a *app) awaitPoolEnd(ctx context.Context, cp controlPlane, name string, limit time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- cp.Pool(name).Wait(bounded) }() // ends with bounded, and is waited for below
	tick := time.NewTicker(a.pollInterval)
	defer tick.Stop()
	var left []api.RosterEntry
	for {
		select {
		case err := <-ended:
			var closed *temporal.WorkflowExecutionError
			switch {
			case err == nil, errors.As(err, &closed): // also one that was terminated meanwhile has ended
				return nil
			case ctx.Err() != nil:
				return ctx.Err()
			case bounded.Err() != nil:
				return stopTimeoutError(name, limit, left)
			}
			return err
		case <-tick.C:
			left = a.showRemaining(bounded, cp, name, left)
		}
	}
}

// showRemaining shows who has not ended yet. A pool that does not answer has ended or will be asked again.
func (a *app) showRemaining(ctx context.Context, cp controlPlane, name string, before []api.RosterEntry) []api.RosterEntry {
	request, cancel := context.WithTimeout(ctx, min(a.timeout, time.Second))
	defer cancel()
	status, err := cp.Pool(name).Status(request)
	if err != nil {
		return before
	}
	line := fmt.Sprintf("%s: %s still to end", name, plural(len(status.Workers), "worker"))
	for i, w := range status.Workers {
		if i == 3 {
			line += ", …"
			break
		}
		line += fmt.Sprintf(", %s %s", api.WorkerName(name, w.Slot), w.State)
	}
	a.showProgress(line)
	return status.Workers
}

func stopTimeoutError(name string, limit time.Duration, left []api.RosterEntry) error {
	text := fmt.Sprintf("pool %s has not ended after %s", name, formatDuration(limit))
	if len(left) > 0 {
		w := left[0]
		text += fmt.Sprintf("; %s is %s", api.WorkerName(name, w.Slot), w.State)
		if w.Reason != "" {
			text += ": " + oneLine(w.Reason, 200)
		}
	}
	return api.Errorf(codeTimeout, "%s; it goes on stopping, and ctl ps %s shows how far it is (is the agent of its workers running?)", text, name)
}
