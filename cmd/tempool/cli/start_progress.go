package cli

import (
	"fmt"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// maxFailedStarts is after how many starts, none of which brought the worker into service, tempool reports that it
// cannot start. The pool retries more often.
const maxFailedStarts = 5

// startTracker tracks workers until all of them are in service under a new incarnation.
type startTracker struct {
	from   map[int]int64 // the incarnation to replace, by slot; 0 for a slot that is not in it
	starts map[int]int64 // how many starts of the slot's worker had ended before
	slots  []int         // the tracked slots; nil means all of the pool
	served map[int]bool  // slots that were in service once
}

// startProgress is the state of the tracked workers after one status of the pool.
type startProgress struct {
	wanted, ready int
	waiting       []api.RosterEntry // not in service yet, in order
	failing       []failingWorker   // the waiting workers that have given up or failed too often
}

// failingWorker is a worker that cannot start.
type failingWorker struct {
	api.RosterEntry
	failures int64
}

func (p startProgress) done() bool { return p.ready >= p.wanted }

// line is "python: 2/4 ready; python/2 starting, python/3 pending: backoff of 300ms after exit code 1".
func (p startProgress) line(pool string) string {
	text := fmt.Sprintf("%s: %d/%d ready", pool, p.ready, p.wanted)
	var parts []string
	for i, w := range p.waiting {
		if i == 3 {
			parts = append(parts, fmt.Sprintf("and %d more", len(p.waiting)-i))
			break
		}
		part := fmt.Sprintf("%s %s", api.WorkerName(pool, w.Slot), w.State)
		if w.State == lifecycle.Pending || w.State.Outcome() {
			part += ": " + oneLine(w.Reason, 60)
		}
		parts = append(parts, part)
	}
	if len(parts) > 0 {
		text += "; " + strings.Join(parts, ", ")
	}
	return text
}

// update returns the progress after a status of the pool.
func (s *startTracker) update(status api.PoolStatus) startProgress {
	if s.served == nil {
		s.served = map[int]bool{}
	}
	roster := map[int]api.RosterEntry{}
	for _, w := range status.Workers {
		roster[w.Slot] = w
	}
	slots := s.slots
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
	p := startProgress{wanted: len(slots)}
	for _, slot := range slots {
		w, known := roster[slot]
		if !known {
			w = api.RosterEntry{Slot: slot, State: lifecycle.Created}
		}
		// a number may be skipped: an earlier pool has used it
		incarnations, started := w.Incarnation-s.from[slot], w.Starts-s.starts[slot]
		switch {
		case incarnations > 0 && w.State.InService() && !w.Gone:
			s.served[slot] = true
			p.ready++
			continue
		case incarnations > 0 && w.Resting, !s.served[slot] && started >= maxFailedStarts:
			p.failing = append(p.failing, failingWorker{w, started})
		}
		p.waiting = append(p.waiting, w)
	}
	return p
}
