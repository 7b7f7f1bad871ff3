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

// phases split the time from a kill to the next ready by the events that Temporal wrote meanwhile.
type phases struct {
	watched, noticed, decided, taken, spawned, around, ready, answered *series
}

func newPhases(r *result) *phases {
	return &phases{
		watched:  r.row("… kill until Temporal has the Watch's end", "ms"),
		noticed:  r.row("… until the workflow task for it starts (exited)", "ms"),
		decided:  r.row("… until it is done and Start is scheduled", "ms"),
		taken:    r.row("… until an agent has taken Start", "ms"),
		spawned:  r.row("… the spawn within Start", "ms"),
		around:   r.row("… the rest of Start until Temporal has its end", "ms"),
		ready:    r.row("… until the workflow task for it starts (ready)", "ms"),
		answered: r.row("… until that is done (the state says so)", "ms"),
	}
}

// add reads what was written since the kill.
func (p *phases) add(ctx context.Context, b *bench, c crash) error {
	id := api.WorkerWorkflowID("crash", 0)
	var since []*history.HistoryEvent
	iterator := b.client.Temporal().GetWorkflowHistory(ctx, id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iterator.HasNext() {
		event, err := iterator.Next()
		if err != nil {
			return fmt.Errorf("read the history of %s: %w", id, err)
		}
		if event.GetEventTime().AsTime().After(c.killedAt) {
			since = append(since, event)
		}
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
	next(enums.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, nil)
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
	if err := converter.GetDefaultDataConverter().FromPayloads(completed.GetActivityTaskCompletedEventAttributes().GetResult(), &started); err != nil {
		return fmt.Errorf("read the result of Start: %w", err)
	}
	p.watched.add(milliseconds(times[0].Sub(c.killedAt)))
	p.noticed.add(milliseconds(times[1].Sub(times[0])))
	p.decided.add(milliseconds(times[2].Sub(times[1])))
	p.taken.add(milliseconds(times[3].Sub(times[2])))
	p.spawned.add(float64(started.TookMS))
	p.around.add(milliseconds(times[4].Sub(times[3])) - float64(started.TookMS))
	p.ready.add(milliseconds(times[5].Sub(times[4])))
	p.answered.add(milliseconds(times[6].Sub(times[5])))
	return nil
}
