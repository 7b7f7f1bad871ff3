package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func (a *app) historyCommand() *cobra.Command {
	var all bool
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "history POOL/N",
		Short: "Show the transitions of a worker and their reasons, oldest first",
		Long: `Show the transitions of a worker, oldest first: the newest 100, or all of them with --all. --all replays the
event histories of the worker's workflow, as far back as the namespace retains its runs, which takes a moment. AFTER is the time spent in the state FROM. A line marks transitions that are no longer available.

tempool logs POOL/N --previous shows what the process wrote before it ended.`,
		Example: `  tempool history python/0
  tempool history python/0 --all
  tempool history python/0 -o json | jq -r '.[] | select(.to == "failed") | .reason'`,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		name, slot, _ := workerName(args[0]) // checkArguments has parsed it
		transitions, err := ask(ctx, a, cp.Pool(name).History, slot)
		if err == nil && all {
			a.showProgress("replaying the runs of " + args[0])
			transitions, err = cp.ReplayHistory(ctx, name, slot)
		}
		if errors.Is(err, api.ErrWorkerNotFound) {
			return api.Errorf(api.CodeWorkerNotFound,
				"worker %s is neither running nor recorded in Temporal; tempool ps lists the running workers", args[0])
		} else if err != nil {
			return err
		}
		transitions = append([]lifecycle.Transition{}, transitions...) // [] in JSON
		var gaps []int
		if all {
			gaps = tempool.HistoryGaps(transitions)
		}
		if len(gaps) > 0 {
			a.warn("some transitions of " + args[0] + " are no longer available")
		}
		return a.printResult(transitions, func(text *strings.Builder) {
			writeHistory(text, transitions, gaps, a.cellRunes())
			if slices.ContainsFunc(transitions, func(t lifecycle.Transition) bool { return t.To == lifecycle.Failed }) {
				fmt.Fprintf(text, "What the process wrote before it ended: tempool logs %s --previous\n", args[0])
			}
		})
	})
	c.Flags().BoolVar(&all, "all", false, "also read transitions from earlier runs of the worker's workflow")
	return c
}

// historyGapLine marks a gap in a worker's history.
const historyGapLine = "… transitions missing: a worker keeps its newest 100, and Temporal deletes earlier runs " +
	"after the retention period"

// writeHistory writes the table of tempool history. gaps are the indexes of transitions with a gap before them.
func writeHistory(text *strings.Builder, transitions []lifecycle.Transition, gaps []int, runes int) {
	var aligned strings.Builder
	tableOf(&aligned, []string{"WHEN", "FROM", "EVENT", "TO", "AFTER", "REASON"}, transitions,
		func(t lifecycle.Transition) []string {
			return []string{
				t.Timestamp.UTC().Format(time.RFC3339), string(t.From), string(t.Event), string(t.To),
				formatDuration(time.Duration(t.DurationMS) * time.Millisecond), oneLine(t.Reason, runes),
			}
		})
	for i, line := range strings.SplitAfter(aligned.String(), "\n") {
		if slices.Contains(gaps, i-1) { // line 0 is the header
			fmt.Fprintln(text, historyGapLine)
		}
		text.WriteString(line)
	}
}
