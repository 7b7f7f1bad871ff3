package pool

import (
	"cmp"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/worker"
)

// slot is one line of the roster: what its worker last reported, and what the pool knows beyond that.
type slot struct {
	api.RosterEntry
	// Started says that the pool has started the slot's workflow.
	Started bool `json:"started,omitempty"`
	// Order is the newest one, if it is not sent yet.
	Order *pendingOrder `json:"order,omitempty"`
	// RestartID is the ID of the newest restart of the slot, or start of its workflow.
	RestartID string `json:"restart_id,omitempty"`
	// reporter is the first run of the workflow that reported last while the slot's own was being started: it may be an
	// earlier one.
	reporter string
	// EndLease is the lease under which the pool stops the worker.
	EndLease string `json:"end_lease,omitempty"`
	// began is when this run started the slot's workflow; zero if an earlier run did.
	began time.Time
	// Child says that this run has started it, so that this run learns when its workflow closes.
	Child bool `json:"-"`
	// Closed says that the workflow of a child has closed; its worker reports before that it is gone.
	Closed bool `json:"-"`
}

// pendingOrder is a drain, or the restart of the slot's RestartID.
type pendingOrder struct {
	Kind   string    `json:"kind"` // of an api.Order
	Cause  api.Cause `json:"cause,omitempty"`
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"`
	// InPlace is for a host that is short of memory. It is no reason to give a worker a spec that may fail.
	InPlace bool `json:"in_place,omitempty"`
}

// usedNumbers are the highest numbers that the worker of a slot has reported.
type usedNumbers struct {
	Incarnation int64 `json:"incarnation"`
	LeaseSeq    int64 `json:"lease_seq"`
}

// isClosed reports whether the slot's workflow has closed. Before that the pool must neither complete nor start the
// slot again: without the last agent the workflow would stay open.
func (s slot) isClosed() bool { return s.Gone && (!s.Child || s.Closed) }

// markLost marks a slot whose workflow closed without a report. A worker whose starts failed has used numbers that it
// did not report.
func (s *slot) markLost(reason string) {
	if !s.Gone && !s.State.InService() {
		s.Incarnation += worker.UnreportedIncarnations
	}
	s.Gone, s.Reason = true, display.Truncate(reason, maxReason)
}

// isNewest reports whether a restart is the newest of the slot. One of an earlier build, which has no ID, may be.
func (s slot) isNewest(id string) bool { return id == "" || s.RestartID == "" || id == s.RestartID }

// isStarting reports whether Temporal has not confirmed that the slot's workflow runs; no signal reaches it until then.
func (s slot) isStarting() bool { return s.Started && s.RunID == "" }

// isServing reports whether the slot has a process in service. A pool does not distinguish busy from ready.
func (s slot) isServing() bool {
	return !s.Gone && s.State.InService()
}

func (p *pool) find(number int) (i int, found bool) {
	return slices.BinarySearchFunc(p.Roster, number, func(s slot, n int) int { return s.Slot - n })
}

// slot is the line of a slot, or nil. The pointer is valid until the roster changes: do not hold it across an await.
func (p *pool) slot(number int) *slot {
	i, found := p.find(number)
	if !found {
		return nil
	}
	return &p.Roster[i]
}

// ensure is the line of a slot, which it adds if there is none. It is valid as that of slot is.
func (p *pool) ensure(number int) *slot {
	i, found := p.find(number)
	if !found {
		entry := api.RosterEntry{Slot: number, State: lifecycle.Created, Since: p.Now()}
		if used, known := p.Removed[number]; known {
			entry.Incarnation, entry.LeaseSeq, entry.Gone = used.Incarnation, used.LeaseSeq, true
			delete(p.Removed, number)
		}
		p.Roster = slices.Insert(p.Roster, i, slot{RosterEntry: entry})
	}
	return &p.Roster[i]
}

// slots are the numbers of all workers that are to stay.
func (p *pool) slots() []int {
	var numbers []int
	for i := range p.Roster {
		if s := p.Roster[i]; p.isMember(s.Slot) && !s.Removing && !p.pressure.isStopped(s.Slot) {
			numbers = append(numbers, s.Slot)
		}
	}
	return numbers
}

// workerChanged takes a worker's report. It ignores a late one of an earlier workflow of the same slot, and one that
// its last report has overtaken: Temporal does not keep the order of signals to another workflow. While a workflow is
// being started nobody knows which reports are its own; a last one is not, and started drops what another one said.
func (p *pool) workerChanged(c api.RosterEntry) {
	s := p.slot(c.Slot)
	if s == nil || s.isStarting() && c.Gone || (s.RunID != "" && c.RunID != "" && s.RunID != c.RunID) || s.Gone &&
		!c.Gone && s.RunID == c.RunID || c.Incarnation < s.Incarnation {
		return
	}
	if c.RunID == cmp.Or(s.RunID, s.reporter) {
		if c.ReportSeq == 0 {
			c.ReportSeq = s.ReportSeq
		}
		if c.ReportSeq < s.ReportSeq {
			return
		}
	}
	p.throttle.countStarts(*s, c)
	removing, starting := s.Removing, s.isStarting()
	s.RosterEntry = bounded(c)
	s.Removing, s.Started = removing, true
	if !s.RestOrderedAt.IsZero() {
		p.pressure.leave(s.Slot)
	}
	if starting {
		s.RunID, s.reporter = "", c.RunID
	}
}

// started takes the first run of the workflow that the slot has now, which continues the given incarnation.
func (s *slot) started(runID string, incarnation int64, now time.Time) {
	if s.reporter != "" && s.reporter != runID {
		s.RosterEntry = api.RosterEntry{
			Slot: s.Slot, State: lifecycle.Created, Since: now, Incarnation: incarnation, LeaseSeq: s.LeaseSeq,
			SpecVersion: s.SpecVersion, Removing: s.Removing,
		}
	}
	s.RunID, s.reporter = runID, ""
}

// processesStarted takes what an agent reports of processes that start or are ready. It ignores what is older than the
// worker's own reports.
func (p *pool) processesStarted(m api.ProcessesStarted) {
	for _, started := range m.Processes {
		s := p.slot(started.Slot)
		if s == nil || s.Gone || s.RunID != "" && s.RunID != started.RunID {
			continue
		}
		isNews := started.Incarnation > s.Incarnation ||
			started.Incarnation == s.Incarnation &&
				(s.State == lifecycle.Created || s.State == lifecycle.Pending || s.State == lifecycle.Starting)
		if !isNews {
			continue
		}
		p.workerChanged(api.RosterEntry{
			Slot: started.Slot, State: started.State, Incarnation: started.Incarnation, Host: m.Host, Epoch: m.Epoch,
			PID:      started.PID,
			Endpoint: m.Endpoint, Since: p.Now(), Reason: started.Reason, SpecVersion: started.SpecVersion,
			LeaseSeq: max(s.LeaseSeq, started.LeaseSeq),
			Starts:   started.Starts, StartsFailed: started.StartsFailed, RunID: started.RunID, Begun: started.Begun,
		})
	}
}

// Bounds of what the roster keeps of each worker, in bytes: a thousand of them have to fit into the state of the pool
// and into one answer. tempool ps and tempool history have a worker's whole reason from the worker itself.
const (
	maxReason   = 120
	maxHost     = 128
	maxEndpoint = 272 // of a host with the longest name that DNS takes
	maxID       = 64
)

// bounded is a roster entry whose texts are no longer than the roster keeps. A part of an endpoint would be another
// address: it has none.
func bounded(e api.RosterEntry) api.RosterEntry {
	e.Reason, e.Host = display.Truncate(e.Reason, maxReason), display.Truncate(e.Host, maxHost)
	e.Begun = display.Truncate(e.Begun, maxID)
	if len(e.Endpoint) > maxEndpoint {
		e.Endpoint = ""
	}
	return e
}

// workerClosed marks a slot whose workflow has ended without a report.
func (p *pool) workerClosed(c api.WorkerClosed) {
	s := p.slot(c.Slot)
	if s == nil || s.Gone || !s.Started || s.RunID != c.RunID {
		return
	}
	s.Closed = true
	s.markLost("its workflow was " + c.Status)
}

// sessionStoreClaimed remembers the host that has the pool's sessions, unless another one does that still has workers.
func (p *pool) sessionStoreClaimed(m api.SessionStoreClaim) {
	if p.SessionsHost == "" || !p.hasProcessOn(p.SessionsHost) {
		p.SessionsHost = m.Host
	}
}

// sessionsHost is the host to which its sessions bind the pool; "" for none. Agents with processes of an earlier spec
// still ask for SessionsHost itself.
func (p *pool) sessionsHost() string {
	if p.Spec.Sessions.Store == spec.StoreRedis {
		return ""
	}
	return p.SessionsHost
}

func (p *pool) hasProcessOn(host string) bool {
	return slices.ContainsFunc(p.Roster, func(s slot) bool { return s.Host == host && !s.Gone && s.State.Live() })
}
