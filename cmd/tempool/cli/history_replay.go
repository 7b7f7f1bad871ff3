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

// ReplayHistory returns all transitions of a worker, oldest first, as far back as Temporal retains its runs. A worker's
// workflow keeps only its newest transitions; ReplayHistory replays the event history of each run with the workflow's
// code and records all of them. It fails if this build cannot replay a run.
func (c clientControlPlane) ReplayHistory(ctx context.Context, pool string, slot int) ([]lifecycle.Transition, error) {
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
		window, err := replayRun(c.DataConverter(), events)
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

// readRun returns the replayable event history of one run; "" is the newest run.
func readRun(ctx context.Context, c client.Client, id, runID string) ([]*history.HistoryEvent, error) {
	var events []*history.HistoryEvent
	for pages := c.GetWorkflowHistory(ctx, id, runID, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); pages.HasNext(); {
		event, err := pages.Next()
		if err != nil {
			return nil, err
		}
		events = append(events, event)
	}
	return replayablePrefix(events), nil
}

// replayablePrefix cuts off the events after the last workflow task and its commands, which the workflow has not
// processed yet.
func replayablePrefix(events []*history.HistoryEvent) []*history.HistoryEvent {
	end := 0
	for i, event := range events {
		if event.GetEventType() == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED ||
			(i == end && end > 0 && isCommandEvent(event.GetEventType())) {
			end = i + 1
		}
	}
	return events[:end]
}

// isCommandEvent reports whether a command of a workflow task causes events of this type.
func isCommandEvent(kind enums.EventType) bool {
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

// replayRun returns the ring that a run started with, followed by every transition of the run.
func replayRun(from converter.DataConverter, events []*history.HistoryEvent) ([]lifecycle.Transition, error) {
	if len(events) == 0 {
		return nil, nil
	}
	recorder := &transitionRecorder{}
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{
		Interceptors:             append(workflows.Interceptors(from, nil), recorder),
		DataConverter:            from,
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
	return recorder.transitions, nil
}

// transitionRecorder reads the ring of a replayed worker through its query handler, each time the workflow calls
// workflow.Now. The workflow does so for every transition, so there is at most one new transition per read.
type transitionRecorder struct {
	interceptor.WorkerInterceptorBase
	interceptor.WorkflowInboundInterceptorBase
	ring        func() ([]lifecycle.Transition, error)
	transitions []lifecycle.Transition
}

func (r *transitionRecorder) InterceptWorkflow(_ workflow.Context,
	next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	r.WorkflowInboundInterceptorBase.Next = next
	return r
}

func (r *transitionRecorder) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	return r.Next.Init(&ringInterceptor{interceptor.WorkflowOutboundInterceptorBase{Next: outbound}, r})
}

func (r *transitionRecorder) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	result, err := r.Next.ExecuteWorkflow(ctx, in)
	r.record()
	return result, err
}

func (r *transitionRecorder) record() {
	if r.ring == nil {
		return
	}
	ring, err := r.ring()
	switch {
	case err != nil || len(ring) == 0:
	case len(r.transitions) == 0: // the ring that the run started with
		r.transitions = append(r.transitions, ring...)
	case !sameTransition(r.transitions[len(r.transitions)-1], ring[len(ring)-1]):
		r.transitions = append(r.transitions, ring[len(ring)-1])
	}
}

// sameTransition compares neighbours, which cannot be equal otherwise: no transition leads from a state to itself.
func sameTransition(a, b lifecycle.Transition) bool {
	return a.From == b.From && a.To == b.To && a.Timestamp.Equal(b.Timestamp)
}

// ringInterceptor intercepts the calls of a workflow.
type ringInterceptor struct {
	interceptor.WorkflowOutboundInterceptorBase
	recorder *transitionRecorder
}

func (w *ringInterceptor) SetQueryHandler(ctx workflow.Context, query string, handler any) error {
	if ring, ok := handler.(func() ([]lifecycle.Transition, error)); ok && query == api.QueryHistory {
		w.recorder.ring = ring
	}
	return w.Next.SetQueryHandler(ctx, query, handler)
}

func (w *ringInterceptor) Now(ctx workflow.Context) time.Time {
	w.recorder.record()
	return w.Next.Now(ctx)
}
