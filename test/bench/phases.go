package main

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"

	"github.com/tempool/tempool/api"
)

// phases splits the time from a kill to ready by the history events in between.
type phases struct {
	exitSignaled, exitTask, startScheduled, startStarted, spawned, startRest, ready, readyDone *series
}

func newPhases(r *result) *phases {
	return &phases{
		exitSignaled:   r.row("… SIGKILL to WorkflowExecutionSignaled, which reports the exit", "ms"),
		exitTask:       r.row("… to the start of its workflow task", "ms"),
		startScheduled: r.row("… to ActivityTaskScheduled of Start", "ms"),
		startStarted:   r.row("… to ActivityTaskStarted of Start", "ms"),
		spawned:        r.row("… spawn within Start", "ms"),
		startRest:      r.row("… rest of Start, to its ActivityTaskCompleted", "ms"),
		ready:          r.row("… to the start of its workflow task (ready)", "ms"),
		readyDone:      r.row("… to the end of that workflow task (state is ready)", "ms"),
	}
}

// add reads the history events since the kill.
func (p *phases) add(ctx context.Context, b *bench, c crash) error {
	id := api.WorkerWorkflowID("crash", 0)
	var since []*history.HistoryEvent
	err := b.eachEvent(ctx, id, func(event *history.HistoryEvent) {
		if event.GetEventTime().AsTime().After(c.killedAt) {
			since = append(since, event)
		}
	})
	if err != nil {
		return err
	}
	var times []time.Time
	after := -1
	next := func(kind enums.EventType, fits func(*history.HistoryEvent) bool) *history.HistoryEvent {
		for i := after + 1; i < len(since); i++ {
			if since[i].GetEventType() == kind && (fits == nil || fits(since[i])) {
				after = i
				times = append(times, since[i].GetEventTime().AsTime())
				return since[i]
			}
		}
		return nil
	}
	var scheduled int64
	isStart := func(e *history.HistoryEvent) bool {
		return e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == api.ActivityStart
	}
	next(enums.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, func(e *history.HistoryEvent) bool {
		return e.GetWorkflowExecutionSignaledEventAttributes().GetSignalName() == api.SignalProcessEvents
	})
	next(enums.EVENT_TYPE_WORKFLOW_TASK_STARTED, nil)
	if event := next(enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, isStart); event != nil {
		scheduled = event.GetEventId()
	}
	next(enums.EVENT_TYPE_ACTIVITY_TASK_STARTED, func(e *history.HistoryEvent) bool {
		return e.GetActivityTaskStartedEventAttributes().GetScheduledEventId() == scheduled
	})
	completed := next(enums.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, func(e *history.HistoryEvent) bool {
		return e.GetActivityTaskCompletedEventAttributes().GetScheduledEventId() == scheduled
	})
	next(enums.EVENT_TYPE_WORKFLOW_TASK_STARTED, nil)
	next(enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, nil)
	if len(times) != 7 {
		return fmt.Errorf("the history of %s has %d of the 7 events expected after a kill", id, len(times))
	}
	var started api.StartResult
	if err := converter.GetDefaultDataConverter().FromPayloads(
		completed.GetActivityTaskCompletedEventAttributes().GetResult(), &started); err != nil {
		return fmt.Errorf("read the result of Start: %w", err)
	}
	p.exitSignaled.add(milliseconds(times[0].Sub(c.killedAt)))
	p.exitTask.add(milliseconds(times[1].Sub(times[0])))
	p.startScheduled.add(milliseconds(times[2].Sub(times[1])))
	p.startStarted.add(milliseconds(times[3].Sub(times[2])))
	p.spawned.add(float64(started.TookMS))
	p.startRest.add(milliseconds(times[4].Sub(times[3])) - float64(started.TookMS))
	p.ready.add(milliseconds(times[5].Sub(times[4])))
	p.readyDone.add(milliseconds(times[6].Sub(times[5])))
	return nil
}

// eventCount is the number of events in a history, and of completed activities among them.
type eventCount struct{ all, activities int }

func (b *bench) countEvents(ctx context.Context, pool string, slot int) (w eventCount, err error) {
	err = b.eachEvent(ctx, api.WorkerWorkflowID(pool, slot), func(event *history.HistoryEvent) {
		w.all++
		if event.GetEventType() == enums.EVENT_TYPE_ACTIVITY_TASK_COMPLETED {
			w.activities++
		}
	})
	return w, err
}

// eachEvent calls visit with every event of the newest run of a workflow.
func (b *bench) eachEvent(ctx context.Context, id string, visit func(*history.HistoryEvent)) error {
	for events := b.client.Temporal().GetWorkflowHistory(ctx, id, "", false,
		enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		event, err := events.Next()
		if err != nil {
			return fmt.Errorf("read the history of %s: %w", id, err)
		}
		visit(event)
	}
	return nil
}
