package main

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

const (
	// leasesCounted is the number of consecutive leases.
	leasesCounted = 50
	// checkpointsCounted is the number of checkpoints, at a shorter interval than the default.
	checkpointsCounted = 10
	fastCheckpoint     = time.Second
	// lifeEvents estimates the events of a day besides checkpoints: start, stop and Watch.
	lifeEvents = 100

	leaseEventsTarget = 9
	idleEventsTarget  = 4000
)

// measureEvents counts the history events of leases and of an idle day.
func measureEvents(ctx context.Context, b *bench) error {
	if _, err := b.agent(ctx, "events"); err != nil {
		return err
	}
	if err := b.leaseEvents(ctx); err != nil {
		return err
	}
	return b.idleEvents(ctx)
}

func (b *bench) leaseEvents(ctx context.Context) error {
	r := b.result
	pool, err := b.startPool(ctx, b.echo("events", 1))
	if err != nil {
		return err
	}
	bySignal := func(id string) error {
		if err := b.client.Checkin(ctx, api.CheckinRequest{LeaseID: id}); err != nil {
			return err
		}
		return awaitWorker(ctx, pool, 0, 1, fastPoll) // ready means that the workflow task of the signal is complete
	}
	byUpdate := func(id string) error {
		_, err := b.client.CheckinNow(ctx, api.CheckinRequest{LeaseID: id})
		return err
	}
	worst := 0.0
	for _, kind := range []struct {
		name    string
		checkin func(string) error
	}{{"events per lease, checkin by signal", bySignal}, {"events per lease, checkin by update", byUpdate}} {
		row := r.row(kind.name, "events")
		for range leasesCounted {
			before, err := b.countEvents(ctx, "events", 0)
			if err != nil {
				return err
			}
			lease, err := pool.CheckoutOnce(ctx, 0, tempool.CheckoutOptions{Holder: "bench"})
			if err == nil {
				err = kind.checkin(lease.ID)
			}
			if err != nil {
				return err
			}
			after, err := b.countEvents(ctx, "events", 0)
			if err != nil {
				return err
			}
			row.add(float64(after.all - before.all))
		}
		worst = max(worst, row.Max)
	}
	r.atMost("history events per lease, maximum", worst, leaseEventsTarget, "events")
	return nil
}

func (b *bench) idleEvents(ctx context.Context) error {
	r := b.result
	s := b.echo("idle", 1)
	perDay := float64(24*time.Hour) / float64(s.Health.Checkpoint.D()) // default spec
	s.Health.Checkpoint = spec.Duration(fastCheckpoint)
	if _, err := b.startPool(ctx, s); err != nil {
		return err
	}
	if _, err := b.awaitActivities(ctx, "idle", 2); err != nil { // Start and the first checkpoint
		return err
	}
	each := r.row("events per health checkpoint", "events")
	before, err := b.countEvents(ctx, "idle", 0)
	if err != nil {
		return err
	}
	for range checkpointsCounted {
		after, err := b.awaitActivities(ctx, "idle", before.activities+1)
		if err != nil {
			return err
		}
		each.add(float64(after.all-before.all) / float64(after.activities-before.activities))
		before = after
	}
	day := r.row("events of an idle worker per day, default spec", "events")
	day.add(each.Median*perDay + lifeEvents)
	r.note("a day has %.0f checkpoints with the default spec; %d events are added for start, stop and Watch", perDay, lifeEvents)
	r.atMost("history events of an idle worker per day", day.Median, idleEventsTarget, "events")
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
	for events := b.client.Temporal().GetWorkflowHistory(ctx, id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		event, err := events.Next()
		if err != nil {
			return fmt.Errorf("read the history of %s: %w", id, err)
		}
		visit(event)
	}
	return nil
}

// awaitActivities polls until n activities of an idle worker are completed.
func (b *bench) awaitActivities(ctx context.Context, pool string, n int) (w eventCount, err error) {
	err = poll(ctx, waitTimeout, 20*time.Millisecond, func(ctx context.Context) error {
		if w, err = b.countEvents(ctx, pool, 0); err == nil && w.activities < n {
			err = fmt.Errorf("pool %s has completed %d activities of %d", pool, w.activities, n)
		}
		return err
	})
	return w, err
}
