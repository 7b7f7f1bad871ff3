package pool

import (
	"slices"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/workflows/worker"
)

// usedNumbers are the highest numbers that the worker of a slot is known to have given out.
type usedNumbers struct {
	Incarnation int64 `json:"incarnation"`
	LeaseSeq    int64 `json:"lease_seq"`
}

// slot is one line of the roster: what its worker last said, and what the pool knows beyond it.
type slot struct {
	api.RosterEntry
	Child   bool `json:"-"` // started by this run: the parent close policy reaches it when this run closes
	Started bool `json:"born,omitempty"`
	// Closed says that the workflow of a child has ended; its worker says before that it is gone.
	Closed bool `json:"-"`
}

// ended reports whether nothing is left of the slot's workflow. A pool must not go, nor a slot begin anew, before that: whoever
// stops the last agent then would leave the workflow open.
func (s slot) isClosed() bool { return s.Gone && (!s.Child || s.Closed) }

// markLost takes a slot's workflow for gone that did not say so itself. One whose starts failed has used numbers that it did not tell.
func (s *slot) markLost(reason string) {
	if !s.Gone && (s.State == lifecycle.Pending || s.State == lifecycle.Starting) {
		s.Incarnation += worker.UnreportedIncarnations + policy.MaxTries
	}
	s.Gone, s.Reason = true, reason
}

// isStarting reports whether Temporal has not said yet that the slot's workflow runs; nobody can be told anything until then.
func (s slot) isStarting() bool { return s.Started && s.RunID == "" }

// slot finds a line of the roster.
func (p *pool) slot(number int) *slot {
	i, found := slices.BinarySearchFunc(p.Roster, number, func(s slot, n int) int { return s.Slot - n })
	if !found {
		return nil
	}
	return &p.Roster[i]
}

// ensure finds a line of the roster or makes it.
func (p *pool) ensure(number int) *slot {
	i, found := slices.BinarySearchFunc(p.Roster, number, func(s slot, n int) int { return s.Slot - n })
	if !found {
		entry := api.RosterEntry{Slot: number, State: lifecycle.Created, Since: p.now()}
		if former, known := p.Removed[number]; known {
			entry.Incarnation, entry.LeaseSeq, entry.Gone = former.Incarnation, former.LeaseSeq, true
			delete(p.Removed, number)
		}
		p.Roster = slices.Insert(p.Roster, i, slot{RosterEntry: entry})
	}
	return &p.Roster[i]
}

// removeUnwanted asks the workers to end that are not to stay, and takes those off the roster that have ended. One whose start
// is on its way is asked when it can hear it.
func (p *pool) removeUnwanted() {
	for i := range p.Roster {
		if s := &p.Roster[i]; p.isUnwanted(*s) && !s.Leaving && !s.Gone && !s.isStarting() {
			p.endWorker(s)
		}
	}
	p.Roster = slices.DeleteFunc(p.Roster, func(s slot) bool {
		if !s.isClosed() || !p.isUnwanted(s) {
			return false
		}
		if s.Incarnation > 0 {
			if p.Removed == nil {
				p.Removed = map[int]usedNumbers{}
			}
			p.Removed[s.Slot] = usedNumbers{s.Incarnation, s.LeaseSeq}
		}
		return true
	})
}

func (p *pool) isUnwanted(s slot) bool { return p.Stopping || s.Slot >= p.Size }

// workerChanged takes what a worker says of itself. What an earlier workflow of the same slot said late is not listened to.
func (p *pool) workerChanged(c api.WorkerChanged) {
	s := p.slot(c.Slot)
	if s == nil || (s.RunID != "" && c.RunID != "" && s.RunID != c.RunID) || c.Incarnation < s.Incarnation {
		return
	}
	p.countStarts(*s, c.RosterEntry)
	leaving := s.Leaving
	s.RosterEntry = c.RosterEntry
	s.Leaving, s.RunID, s.Started = leaving, c.RunID, true
}

// slots lists the numbers of all workers that are to stay.
func (p *pool) slots() []int {
	var numbers []int
	for i := range p.Roster {
		if s := p.Roster[i]; s.Slot < p.Size && !s.Leaving && !p.isParked(s.Slot) {
			numbers = append(numbers, s.Slot)
		}
	}
	return numbers
}

// sessionStoreClaimed remembers the host that keeps the pool's sessions, unless another one does that has workers still.
func (p *pool) sessionStoreClaimed(m api.SessionStoreClaimed) {
	if p.SessionsHost == "" || !p.hasProcessOn(p.SessionsHost) {
		p.SessionsHost = m.Host
	}
}

func (p *pool) hasProcessOn(host string) bool {
	return slices.ContainsFunc(p.Roster, func(s slot) bool { return s.Host == host && !s.Gone && s.State.Live() })
}

// isServing reports whether the slot has a process that is in service; to a pool, busy and ready are one.
func (s slot) isServing() bool {
	return !s.Gone && (s.State == lifecycle.Ready || s.State == lifecycle.Busy)
}
