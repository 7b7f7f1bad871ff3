package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func (a *app) historyCommand() *cobra.Command {
	var all bool
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "history POOL/N",
		Short: "Show what happened to a worker and why, oldest first",
		Long: `Show the transitions of a worker, oldest first: the newest 100, or with --all also the older ones, read back from earlier
runs of its workflow as far as the namespace retains them; a run with more than it hands on is replayed from its event
history, which takes a moment. AFTER is the time spent in the state that was left. Where transitions cannot be read back any
more, a line says so.`,
		Example: `  ctl history python/0
  ctl history python/0 --all
  ctl history python/0 -o json | jq -r '.[] | select(.to == "failed") | .reason'`,
		Args:              exactly(argWorker),
		ValidArgsFunction: a.completeWorkers,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		name, slot, err := workerName(args[0])
		if err != nil {
			return err
		}
		transitions, err := a.transitions(ctx, cp, name, slot, all)
		if err != nil {
			return err
		}
		var gaps []int
		if all {
			gaps = tempool.HistoryGaps(transitions)
		}
		if len(gaps) > 0 {
			a.warn("some transitions of " + args[0] + " cannot be read back any more")
		}
		return a.printResult(transitions, func(w io.Writer) error { return writeHistory(w, transitions, gaps) })
	})
	c.Flags().BoolVar(&all, "all", false, "read older transitions back from earlier runs of the worker's workflow")
	return c
}

// transitions is a worker's history: its newest transitions, or all that can be had. All are read the cheap way, and replayed
// where that leaves gaps; what this build cannot replay keeps its gaps.
func (a *app) transitions(ctx context.Context, cp controlPlane, name string, slot int, all bool) ([]lifecycle.Transition, error) {
	request, cancel := a.request(ctx)
	defer cancel()
	if !all {
		transitions, err := cp.Pool(name).History(request, slot)
		return append([]lifecycle.Transition{}, transitions...), err
	}
	transitions, complete, err := cp.Pool(name).FullHistory(request, slot)
	if err != nil || complete {
		return transitions, err
	}
	a.showProgress("replaying the runs of " + api.WorkerName(name, slot))
	replayed, err := cp.ReplayHistory(ctx, name, slot)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil || len(replayed) < len(transitions) {
		return transitions, nil
	}
	return replayed, nil
}
