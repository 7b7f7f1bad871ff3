package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows"
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

// ReplayHistory returns all transitions of a worker, oldest first, as far back as Temporal retains its runs. A worker's
// workflow keeps only its newest transitions; ReplayHistory replays the event history of each run with the workflow's
// code and records all of them. Of a run that this build cannot replay, it has the transitions until there and those
// that the next run began with; tempool.HistoryGaps finds where some are missing.
func (c clientControlPlane) ReplayHistory(ctx context.Context, pool string, slot int) ([]lifecycle.Transition, error) {
	id := api.WorkerWorkflowID(pool, slot)
	var windows [][]lifecycle.Transition
	for runID := ""; ; {
		events, err := readRun(ctx, c.Temporal(), id, runID)
		if err != nil && len(windows) > 0 {
			break // no longer retained
		}
		if err != nil {
			return nil, fmt.Errorf("read a run of %s: %w", id, err)
		}
		windows = append(windows, replayRun(c.DataConverter(), events))
		if runID = events[0].GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId(); runID == "" {
			break
		}
	}
	slices.Reverse(windows)
	newest, err := c.Pool(pool).History(ctx, slot)
	if err != nil {
		return nil, err
	}
	return tempool.JoinHistory(append(windows, newest)), nil
}

// readRun returns the event history of one run; "" is the newest run.
func readRun(ctx context.Context, c client.Client, id, runID string) ([]*history.HistoryEvent, error) {
	var events []*history.HistoryEvent
	for pages := c.GetWorkflowHistory(ctx, id, runID, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); pages.HasNext(); {
		event, err := pages.Next()
		if err != nil {
			return nil, err
		}
		events = append(events, event)
	}
	return events, nil
}

// replayRun returns the ring that a run started with, followed by every transition of the run. The replayer leaves out
// a workflow task that is not complete: the workflow has not processed its events yet.
func replayRun(from converter.DataConverter, events []*history.HistoryEvent) []lifecycle.Transition {
	transitions, err := tempool.CarriedRing(from, events[0].GetWorkflowExecutionStartedEventAttributes())
	record := func(_, _ string, _ time.Time, data any) {
		if event, is := data.(api.TransitionEvent); is {
			transitions = append(transitions, event.Transition)
		}
	}
	replayer, failed := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{
		Interceptors:             workflows.ReplayInterceptors(from, record),
		DataConverter:            from,
		DisableDeadlockDetection: true,
	})
	if err == nil && failed == nil {
		workflows.Register(replayer)
		// a run that fails lacks its last transitions
		_ = replayer.ReplayWorkflowHistory(log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
			&history.History{Events: events})
	}
	return transitions
}
