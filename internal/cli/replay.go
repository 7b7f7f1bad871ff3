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
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows"
)

// ReplayHistory is every transition of one worker, oldest first, as far back as its runs are retained. A worker itself keeps only
// its newest transitions; this replays the event history of each run with the workflow's own code and notes them all. It fails
// for runs that this build cannot replay.
func (c connection) ReplayHistory(ctx context.Context, pool string, slot int) ([]lifecycle.Transition, error) {
	id := api.WorkerWorkflowID(pool, slot)
	var windows [][]lifecycle.Transition
	for runID := ""; ; {
		events, err := readRun(ctx, c.Temporal(), id, runID)
		if len(events) == 0 && len(windows) > 0 {
			break // no longer retained
		}
		if err != nil {
			return nil, fmt.Errorf("read a run of %s: %w", id, err)
		}
		window, err := replayRun(events)
		if err != nil {
			return nil, fmt.Errorf("replay a run of %s: %w", id, err)
		}
		windows = append(windows, window)
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

// readRun is the event history of one run as far as it can be replayed; "" is the newest run.
func readRun(ctx context.Context, c client.Client, id, runID string) ([]*history.HistoryEvent, error) {
	var events []*history.HistoryEvent
	for pages := c.GetWorkflowHistory(ctx, id, runID, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); pages.HasNext(); {
		event, err := pages.Next()
		if err != nil {
			return nil, err
		}
		events = append(events, event)
	}
	return decided(events), nil
}

// decided cuts off what came after the last workflow task and its commands: the workflow has not made anything of it yet.
func decided(events []*history.HistoryEvent) []*history.HistoryEvent {
	end := 0
	for i, event := range events {
		if event.GetEventType() == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED || (i == end && end > 0 && commanded(event.GetEventType())) {
			end = i + 1
		}
	}
	return events[:end]
}

// commanded reports whether events of this kind are what a workflow task asked for.
func commanded(kind enums.EventType) bool {
	switch kind {
	case enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, enums.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED,
		enums.EVENT_TYPE_TIMER_STARTED, enums.EVENT_TYPE_TIMER_CANCELED, enums.EVENT_TYPE_MARKER_RECORDED,
		enums.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED, enums.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED,
		enums.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED,
		enums.EVENT_TYPE_REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED,
		enums.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES, enums.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED,
		enums.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, enums.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
		enums.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED, enums.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
		return true
	}
	return false
}

// replayRun is the ring that a run began with and every transition that followed in it.
func replayRun(events []*history.HistoryEvent) ([]lifecycle.Transition, error) {
	if len(events) == 0 {
		return nil, nil
	}
	notes := &noteTaker{}
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{
		Interceptors:             []interceptor.WorkerInterceptor{notes},
		DataConverter:            converter.GetDefaultDataConverter(),
		DisableDeadlockDetection: true,
	})
	if err != nil {
		return nil, err
	}
	workflows.Register(replayer)
	silent := log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	if err := replayer.ReplayWorkflowHistory(silent, &history.History{Events: events}); err != nil {
		return nil, err
	}
	return notes.transitions, nil
}

// noteTaker looks at a replayed worker's ring by its own query handler, each time the worker asks what time it is. It asks that
// for every transition, so no more than one has happened since the look before.
type noteTaker struct {
	interceptor.WorkerInterceptorBase
	interceptor.WorkflowInboundInterceptorBase
	ring        func() ([]lifecycle.Transition, error)
	transitions []lifecycle.Transition
}

// InterceptWorkflow is part of interceptor.WorkerInterceptor.
func (n *noteTaker) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	n.WorkflowInboundInterceptorBase.Next = next
	return n
}

// Init is part of interceptor.WorkflowInboundInterceptor.
func (n *noteTaker) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	return n.Next.Init(&ringWatcher{interceptor.WorkflowOutboundInterceptorBase{Next: outbound}, n})
}

// ExecuteWorkflow is part of interceptor.WorkflowInboundInterceptor.
func (n *noteTaker) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	result, err := n.Next.ExecuteWorkflow(ctx, in)
	n.look()
	return result, err
}

func (n *noteTaker) look() {
	if n.ring == nil {
		return
	}
	ring, err := n.ring()
	switch {
	case err != nil || len(ring) == 0:
	case len(n.transitions) == 0: // what the run began with
		n.transitions = append(n.transitions, ring...)
	case !sameStep(n.transitions[len(n.transitions)-1], ring[len(ring)-1]):
		n.transitions = append(n.transitions, ring[len(ring)-1])
	}
}

// sameStep reports whether two neighbours are one transition; no transition leads from a state to itself.
func sameStep(a, b lifecycle.Transition) bool {
	return a.From == b.From && a.To == b.To && a.Timestamp.Equal(b.Timestamp)
}

// ringWatcher sees the calls that a workflow makes.
type ringWatcher struct {
	interceptor.WorkflowOutboundInterceptorBase
	notes *noteTaker
}

// SetQueryHandler is part of interceptor.WorkflowOutboundInterceptor.
func (w *ringWatcher) SetQueryHandler(ctx workflow.Context, query string, handler any) error {
	if ring, fits := handler.(func() ([]lifecycle.Transition, error)); fits && query == api.QueryHistory {
		w.notes.ring = ring
	}
	return w.Next.SetQueryHandler(ctx, query, handler)
}

// Now is part of interceptor.WorkflowOutboundInterceptor.
func (w *ringWatcher) Now(ctx workflow.Context) time.Time {
	w.notes.look()
	return w.Next.Now(ctx)
}
