package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// maxFailedStarts is after how many incarnations that never came into service a worker is said to be unable to start. The pool
// itself goes on trying for longer.
const maxFailedStarts = 5

// startTracker follows workers until all of them serve under an incarnation above the one they are to leave behind.
type startTracker struct {
	from   map[int]int64 // by slot; a slot that is not in it starts from 0
	slots  []int         // who is followed; nil means every slot below the pool's size
	served map[int]bool
}

// startProgress is what startup makes of one look at a pool.
type startProgress struct {
	wanted, ready int
	waiting       []api.RosterEntry // not there yet, in order
	failing       []failingWorker   // of those, the ones that will not come by themselves or fail again and again
}

// stuck is a worker that cannot start.
type failingWorker struct {
	api.RosterEntry
	failures int64
}

func (s startProgress) done() bool { return s.ready >= s.wanted }

// line says how far it is: "python: 2/4 ready; python/2 starting, python/3 pending: backoff of 300ms after exit code 1".
func (s startProgress) line(pool string) string {
	text := fmt.Sprintf("%s: %d/%d ready", pool, s.ready, s.wanted)
	var parts []string
	for i, w := range s.waiting {
		if i == 3 {
			parts = append(parts, fmt.Sprintf("and %d more", len(s.waiting)-i))
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

// look takes one status of the pool into account.
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
		for slot := range status.Size {
			slots = append(slots, slot)
		}
	}
	st := startProgress{wanted: len(slots)}
	for _, slot := range slots {
		w, known := roster[slot]
		if !known {
			w = api.RosterEntry{Slot: slot, State: lifecycle.Created}
		}
		lived := w.Incarnation - s.from[slot]
		switch {
		case lived > 0 && inService(w.State) && !w.Gone:
			s.served[slot] = true
			st.ready++
			continue
		case lived > 0 && w.Resting, !s.served[slot] && lived > maxFailedStarts:
			st.failing = append(st.failing, failingWorker{w, lived - 1})
		}
		st.waiting = append(st.waiting, w)
	}
	return st
}

// lastFailure is the newest end of an incarnation that nobody asked for.
func lastFailure(transitions []lifecycle.Transition) (lifecycle.Transition, bool) {
	for i := len(transitions) - 1; i >= 0; i-- {
		if t := transitions[i]; t.To == lifecycle.Failed || t.To == lifecycle.Killed || t.To == lifecycle.Finished {
			return t, true
		}
	}
	return lifecycle.Transition{}, false
}

// cannotStartError is the failure of a worker that does not come into service; reason may have many lines, the last of them its log.
func cannotStartError(pool string, w failingWorker, reason string) error {
	what := fmt.Sprintf("failed %d times without coming into service", w.failures)
	next := fmt.Sprintf("The pool goes on trying; mend the cause and run ctl pool apply -f FILE, or give up with ctl pool stop %s", pool)
	if w.Resting {
		what = "has given up (" + string(w.State) + ")"
		next = fmt.Sprintf("Mend the cause, then run ctl pool apply -f FILE or ctl workers restart %s --worker %d", pool, w.Slot)
	}
	return api.Errorf(api.CodeStartFailed, "worker %s cannot start, it %s: %s\n%s",
		api.WorkerName(pool, w.Slot), what, strings.TrimRight(reason, "\n"), next)
}

// notReadyError is the failure of a wait whose time was up.
func notReadyError(pool string, limit time.Duration, st startProgress, hint string) error {
	text := fmt.Sprintf("pool %s is not ready after %s", pool, formatDuration(limit))
	if st.wanted > 0 { // else it was never heard of
		text += fmt.Sprintf(" (%d of %d workers are)", st.ready, st.wanted)
	}
	if len(st.waiting) > 0 { // one tells enough; ctl ps tells the rest
		w := st.waiting[0]
		text += fmt.Sprintf("; %s is %s", api.WorkerName(pool, w.Slot), w.State)
		if w.Reason != "" {
			text += ": " + oneLine(w.Reason, 200)
		}
	}
	switch {
	case hint != "":
	case st.wanted == 0: // Temporal remembers agents that are gone for a while
		hint = "nobody answers for it, so no agent may be running any more; start one with: worker"
	default:
		hint = fmt.Sprintf("it goes on starting; ctl pool status %s shows how, and ctl pool stop %s gives up", pool, pool)
	}
	return api.Errorf(codeTimeout, "%s; %s", text, hint)
}

// agentHint says what to do when agents are missing; "" when enough of them poll.
func agentHint(agents tempool.Agents, address, placement string) string {
	start := "start one with: worker"
	if address != "" {
		start += " --address " + address
	}
	switch {
	case agents.Workflows == 0:
		return "no agent is running; " + start
	case agents.Placement == 0:
		return fmt.Sprintf("no agent with room takes workers with placement %q; %s --labels %s, or raise --capacity of one", placement, start, placement)
	}
	return ""
}
