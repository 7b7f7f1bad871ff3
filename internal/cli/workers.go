package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
)

func (a *app) workersCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "workers",
		Short: "Restart, drain, suspend, resume or stop workers, and see what they use",
		Example: `  ctl workers restart python
  ctl workers drain python --worker 2 --reason "look at its memory"
  ctl workers stats`,
	},
		a.restartCommand(), a.statsCommand(),
		a.signalCommand(drainSpec), a.signalCommand(suspendSpec), a.signalCommand(resumeSpec), a.signalCommand(stopSpec),
	)
}

// workerFlags holds the flags that say which workers, and why.
type workerFlags struct {
	worker int
	reason string
}

func (o *workerFlags) flags(a *app, c *cobra.Command) {
	c.Flags().IntVar(&o.worker, "worker", -1, "number of the worker (default: all of the pool)")
	c.Flags().StringVar(&o.reason, "reason", "", "why, for the worker's history")
	if err := c.RegisterFlagCompletionFunc("worker", a.completeSlots); err != nil {
		panic("command " + c.Name() + ": " + err.Error())
	}
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("worker") && o.worker < 0 {
			return usagef("--worker is %d; give the number of a worker, from 0 on", o.worker)
		}
		return check(cmd, args)
	}
}

// slot is the number of the worker, nil for all.
func (o *workerFlags) slot() *int {
	if o.worker < 0 {
		return nil
	}
	return &o.worker
}

func (a *app) restartCommand() *cobra.Command {
	var who workerFlags
	var wait waitFlags
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "restart POOL",
		Short: "Restart one worker, or all of a pool one after the other",
		Long: `Restart one worker, or without --worker all of a pool, at most rotation.max_unavailable at a time. Each drains first and comes
back under a higher incarnation. Workers that were drained, stopped or have given up are revived.`,
		Example: `  ctl workers restart python
  ctl workers restart python --worker 0 --reason "new model on disk"`,
		Args:              exactly(argPool),
		ValidArgsFunction: a.completePools,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		name, slot := args[0], who.slot()
		back, err := a.restartWait(ctx, cp, name, slot, wait)
		if err != nil {
			return err
		}
		result, err := a.restart(ctx, cp, name, api.RestartRequest{Worker: slot, Reason: who.reason, By: operator()})
		switch {
		case err != nil:
			return err
		case wait.skip:
		case slot == nil:
			err = a.awaitRollout(ctx, cp, name, wait.limit)
		default:
			err = a.awaitReady(ctx, cp, back)
		}
		if err != nil {
			return err
		}
		return a.printResult(result, func(w io.Writer) error {
			text := "%s of pool %s restarted\n"
			if wait.skip {
				text = "%s of pool %s will restart; ctl ps %[2]s shows how far it is\n"
			}
			_, err := fmt.Fprintf(w, text, plural(len(result.Workers), "worker"), name)
			return err
		})
	})
	who.flags(a, c)
	wait.flags(c, defaultRolloutWait, "until the workers serve again")
	return c
}

func (a *app) restart(ctx context.Context, cp controlPlane, name string, r api.RestartRequest) (api.RestartResult, error) {
	request, cancel := a.request(ctx)
	defer cancel()
	return cp.Pool(name).Restart(request, r)
}

func (a *app) poolStatus(ctx context.Context, cp controlPlane, name string) (api.PoolStatus, error) {
	request, cancel := a.request(ctx)
	defer cancel()
	return cp.Pool(name).Status(request)
}

// restartWait prepares the wait for one worker to serve under a higher incarnation than it has now; nil when nobody waits for one.
func (a *app) restartWait(ctx context.Context, cp controlPlane, name string, slot *int, wait waitFlags) (*readyWait, error) {
	if slot == nil || wait.skip {
		return nil, nil
	}
	status, err := a.poolStatus(ctx, cp, name)
	if err != nil {
		return nil, err
	}
	from := map[int]int64{}
	for _, w := range status.Workers {
		if w.Slot != *slot {
			continue
		}
		state, err := a.workerState(ctx, cp, name, *slot)
		if err != nil && !errors.Is(err, api.ErrWorkerNotFound) { // one whose workflow was ended comes back all the same
			return nil, err
		}
		from[*slot] = max(w.Incarnation, state.Incarnation)
	}
	return &readyWait{
		pool: name, placement: status.Spec.Pool.Placement, limit: wait.limit,
		startTracker: startTracker{from: from, slots: []int{*slot}},
	}, nil
}
