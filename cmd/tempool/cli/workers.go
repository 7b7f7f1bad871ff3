package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
)

func (a *app) workersCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "workers",
		Short: "Restart, drain, suspend, resume or stop workers, and show their resource usage",
		Example: `  tempool workers restart python
  tempool workers drain python/2 --reason "look at its memory"
  tempool workers stats`,
	},
		a.restartCommand(), a.statsCommand(),
		a.signalCommand(drainSignal), a.signalCommand(suspendSignal), a.signalCommand(resumeSignal),
		a.signalCommand(stopSignal),
	)
}

func (a *app) restartCommand() *cobra.Command {
	var reason string
	var wait waitFlags
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "restart POOL[/N]",
		Short: "Restart one worker, or all workers of a pool in turn",
		Long: `Restart one worker, or all workers of a pool, at most rotation.max_unavailable at a time. Each worker drains first and
starts again as a new incarnation. Workers that were drained, stopped or have given up start again, too.`,
		Example: `  tempool workers restart python
  tempool workers restart python/0 --reason "new model on disk"`,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		name, slot, _ := poolOrWorker(args[0]) // checkArguments has parsed it
		ready, err := a.restartWait(ctx, cp, name, slot, wait)
		if err != nil {
			return err
		}
		request := api.RestartRequest{Worker: slot, Reason: reason, By: operator()}
		result, err := send(ctx, a, func(ctx context.Context) (api.RestartResult, error) {
			return cp.Pool(name).Restart(ctx,
				request)
		})
		if err != nil {
			return err
		}
		workers := plural(len(result.Workers), "worker")
		switch {
		case wait.skip:
			return a.printMessage(result, "restarting %s of pool %s; run tempool ps %[2]s to follow", workers, name)
		case slot == nil:
			err = a.awaitRollout(ctx, cp, name, wait.limit)
		default:
			err = a.awaitReady(ctx, cp, ready)
		}
		if err != nil {
			return err
		}
		return a.printMessage(result, "%s of pool %s restarted", workers, name)
	})
	c.Flags().StringVar(&reason, "reason", "", "reason to record in the worker's history")
	wait.flags(c, defaultRolloutWait, "until the workers are ready again")
	return c
}

// restartWait prepares the wait for one worker to be ready under a higher incarnation than it has now. It returns nil
// without a single worker to wait for.
func (a *app) restartWait(ctx context.Context, cp controlPlane, name string, slot *int,
	wait waitFlags) (*readyWait, error) {
	if slot == nil || wait.skip {
		return nil, nil
	}
	status, err := send(ctx, a, cp.Pool(name).Status)
	if err != nil {
		return nil, err
	}
	from, starts := map[int]int64{}, map[int]int64{}
	for _, w := range status.Workers {
		if w.Slot != *slot {
			continue
		}
		state, err := a.workerState(ctx, cp, name, *slot)
		if err != nil && !errors.Is(err, api.ErrWorkerNotFound) { // the pool restarts a worker whose workflow was terminated
			return nil, err
		}
		from[*slot], starts[*slot] = max(w.Incarnation, state.Incarnation), w.Starts
	}
	return &readyWait{
		pool: name, program: status.Spec.Pool, limit: wait.limit,
		startTracker: startTracker{from: from, starts: starts, slots: []int{*slot}},
	}, nil
}

func (a *app) workerState(ctx context.Context, cp controlPlane, name string, slot int) (api.WorkerState, error) {
	return send(ctx, a, func(ctx context.Context) (api.WorkerState, error) { return cp.Pool(name).State(ctx, slot) })
}
