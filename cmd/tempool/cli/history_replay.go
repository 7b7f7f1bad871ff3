package cli

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

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
