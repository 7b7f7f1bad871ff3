// Package ready tracks the workers of a pool until they are in service.
package ready

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/format"
	"github.com/tempool/tempool/lifecycle"
)

// maxFailedStarts is after how many starts, none of which brought the worker into service, a worker cannot start; one
// is enough while the breaker is open, which delays the next by half a minute. The pool retries more often.
const maxFailedStarts = 5

// Tracker tracks workers until all of them are in service under a new incarnation. Its zero value tracks all workers of
// a pool that has just started.
type Tracker struct {
	From   map[int]int64              // the incarnation to replace, by slot; 0 for a slot that is not in it
	Starts map[int]int64              // how many starts of the slot's worker had ended before
	Slots  []int                      // the tracked slots; nil means all of the pool
	Stale  func(api.RosterEntry) bool // reports whether an entry is about an earlier process; nil: none is

	served map[int]bool // slots that were in service once
}

// Progress is the state of the tracked workers after one status of the pool.
type Progress struct {
	Wanted, Ready int
	Waiting       []api.RosterEntry // not in service yet, in order
	Failing       []Failing         // the waiting workers that have given up or failed too often
}

// Failing is a worker that cannot start.
type Failing struct {
	api.RosterEntry
	Failures int64
}

// Done reports whether all tracked workers are in service.
func (p Progress) Done() bool { return p.Ready >= p.Wanted }

// Line is "python: 2/4 ready; python/2 starting, python/3 pending: backoff of 300ms after exit code 1".
func (p Progress) Line(pool string) string {
	return fmt.Sprintf("%s: %d/%d ready%s", pool, p.Ready, p.Wanted, States(pool, p.Waiting))
}

// States lists what the first three of some workers are doing, after a semicolon; "" without workers.
func States(pool string, workers []api.RosterEntry) string {
	var parts []string
	for i, w := range workers {
		if i == 3 {
			parts = append(parts, fmt.Sprintf("and %d more", len(workers)-i))
			break
		}
		part := fmt.Sprintf("%s %s", api.WorkerName(pool, w.Slot), w.State)
		if w.Reason != "" && !w.State.InService() {
			part += ": " + format.OneLine(w.Reason, 200)
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return ""
	}
	return "; " + strings.Join(parts, ", ")
}

// Update returns the progress after a status of the pool.
func (t *Tracker) Update(status api.PoolStatus) Progress {
	if t.served == nil {
		t.served = map[int]bool{}
	}
	roster := map[int]api.RosterEntry{}
	for _, w := range status.Workers {
		roster[w.Slot] = w
	}
	slots := t.Slots
	if slots == nil {
		for _, w := range status.Workers {
			if !w.Removing {
				slots = append(slots, w.Slot)
			}
		}
		for slot := 0; len(slots) < status.Size; slot++ { // the pool has not listed them yet
			if _, known := roster[slot]; !known {
				slots = append(slots, slot)
			}
		}
	}
	p := Progress{Wanted: len(slots)}
	for _, slot := range slots {
		w, known := roster[slot]
		if !known {
			w = api.RosterEntry{Slot: slot, State: lifecycle.Created}
		}
		// a number may be skipped: an earlier pool has used it
		incarnations, started := w.Incarnation-t.From[slot], w.Starts-t.Starts[slot]
		switch {
		case incarnations > 0 && w.State.InService() && !w.Gone && (t.Stale == nil || !t.Stale(w)):
			t.served[slot] = true
			p.Ready++
			continue
		case incarnations > 0 && w.Resting, !t.served[slot] && started >= maxFailedStarts,
			!t.served[slot] && started > 0 && status.StartsPaused != "":
			p.Failing = append(p.Failing, Failing{w, started})
		}
		p.Waiting = append(p.Waiting, w)
	}
	return p
}

// Histories reads the histories of a pool's workers.
type Histories interface {
	History(ctx context.Context, slot int) ([]lifecycle.Transition, error)
}

// CannotStart says which worker does not get into service, and why: the reason of its last failed incarnation, which
// includes the end of the log.
func CannotStart(ctx context.Context, from Histories, pool string, w Failing) string {
	reason := w.Reason
	if failure, found := LastFailure(ctx, from, w.Slot); found {
		reason = failure.Reason
	}
	what := fmt.Sprintf("failed %d times without becoming ready", w.Failures)
	if w.Resting {
		what = "has given up (" + string(w.State) + ")"
	}
	return fmt.Sprintf("worker %s cannot start, it %s: %s", api.WorkerName(pool, w.Slot), what,
		strings.TrimRight(reason, "\n"))
}

// LastFailure returns the newest unplanned end of an incarnation, if the worker answers.
func LastFailure(ctx context.Context, from Histories, slot int) (failure lifecycle.Transition, found bool) {
	transitions, err := from.History(ctx, slot)
	for _, t := range transitions {
		if err == nil && (t.To == lifecycle.Failed || t.To == lifecycle.Killed || t.To == lifecycle.Finished) {
			failure, found = t, true
		}
	}
	return failure, found
}

// Summary says how far the workers are after a limit.
func (p Progress) Summary(pool string, limit time.Duration) string {
	text := fmt.Sprintf("pool %s is not ready after %s", pool, format.Duration(limit))
	if p.Wanted > 0 { // the pool has answered
		text += fmt.Sprintf(" (%d of %d workers are)", p.Ready, p.Wanted)
	}
	return text + States(pool, p.Waiting)
}
