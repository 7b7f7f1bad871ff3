package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/lifecycle"
)

func (a *app) historyCommand() *cobra.Command {
	var all bool
	c := a.leaf(&cobra.Command{
		Use:   "history POOL/N",
		Short: "Show what happened to a worker and why, oldest first",
		Long: `Show the transitions of a worker, oldest first: the newest 100, or with --all also the older ones, read back from earlier
runs of its workflow as far as the namespace retains them. AFTER is the time spent in the state that was left. Where
transitions cannot be read back any more, a line says so.`,
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
		transitions, complete, err := a.transitions(ctx, cp.Pool(name), slot, all)
		if err != nil {
			return err
		}
		if !complete {
			a.warn("some transitions of " + args[0] + " cannot be read back any more")
		}
		return a.print(transitions, func(w io.Writer) error {
			var gaps []int
			if all {
				gaps = tempool.HistoryGaps(transitions)
			}
			return writeHistory(w, transitions, gaps)
		})
	})
	c.Flags().BoolVar(&all, "all", false, "read older transitions back from earlier runs of the worker's workflow")
	return c
}

// transitions is a worker's history; without all it is never said to be incomplete.
func (a *app) transitions(ctx context.Context, p pool, slot int, all bool) ([]lifecycle.Transition, bool, error) {
	request, cancel := a.request(ctx)
	defer cancel()
	if all {
		return p.FullHistory(request, slot)
	}
	transitions, err := p.History(request, slot)
	if transitions == nil {
		transitions = []lifecycle.Transition{}
	}
	return transitions, true, err
}
