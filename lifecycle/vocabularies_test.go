package lifecycle

import "slices"

// Vocabulary maps the states of this machine to those of another system's workers: what that system calls each state, which
// transitions it allows, and which transitions it lacks.
type Vocabulary struct {
	// Name is one word for the machine.
	Name string
	// About says whose machine it is.
	About string
	// Words names our states in this vocabulary. A state without a word does not exist there.
	Words map[State]string
	// Transitions are the moves that machine allows, in its words.
	Transitions []Move
	// Beyond lists the steps taken here that it does not know, each with the reason for having it.
	Beyond []Beyond
}

// Move is an allowed change from one word of a vocabulary to another.
type Move struct{ From, To string }

// Beyond is a group of steps that a vocabulary does not know: from any state of From to any state of To. A nil slice stands for
// every state.
type Beyond struct {
	From, To []State
	Reason   string
}

// Knows reports whether the step between two of our states exists in v: both have a word, and it is the same word or a move
// that v allows.
func (v Vocabulary) Knows(from, to State) bool {
	f, known := v.Words[from]
	t, also := v.Words[to]
	return known && also && (f == t || slices.Contains(v.Transitions, Move{f, t}))
}

// Covers reports whether the step belongs to this group.
func (b Beyond) Covers(from, to State) bool {
	return (b.From == nil || slices.Contains(b.From, from)) && (b.To == nil || slices.Contains(b.To, to))
}

// Vocabularies lists the three: BridgePool, Supervisor, RenderPool.
func Vocabularies() []Vocabulary { return []Vocabulary{BridgePool, Supervisor, RenderPool} }

// BridgePool is the vocabulary of a pool of Python interpreters behind a bridge (D).
var BridgePool = Vocabulary{
	Name:  "BridgePool",
	About: "a pool of Python interpreters behind a bridge",
	Words: map[State]string{
		Starting: "initializing", Ready: "ready", Busy: "busy", Degraded: "degraded", Draining: "busy",
		Stopping: "terminating", Stopped: "terminated", Finished: "terminated", Failed: "terminated", Killed: "terminated",
	},
	Transitions: slices.Concat(
		moves("initializing", "ready", "terminated"),
		moves("ready", "busy", "degraded", "terminating"),
		moves("busy", "ready", "degraded", "terminating"),
		moves("degraded", "ready", "terminating"),
		moves("terminating", "terminated"),
	),
	Beyond: []Beyond{
		{[]State{Created, Pending}, nil, "It knows a worker only from its spawn; a slot here exists before its first process, and the start throttle may hold its start."},
		{ends, []State{Pending, Starting}, "Its terminated is final; here the slot continues with its next incarnation."},
		{[]State{Starting}, []State{Stopping}, "It cannot cancel an initialization; here a start that is no longer wanted is stopped within the grace period."},
		{[]State{Ready, Busy, Degraded, Draining}, ends, "It ends a worker only by terminating it; here an unexpected exit is recorded immediately."},
		{[]State{Degraded}, []State{Draining}, "It calls draining busy, and never makes a degraded worker busy; here a degraded worker drains like any other."},
		{nil, []State{Suspended}, "It cannot pause a worker."},
		{[]State{Suspended}, nil, "It cannot pause a worker, so no transition leaves a pause."},
	},
}

// Supervisor is the vocabulary of a Go library that supervises goroutines, processes and containers (L).
var Supervisor = Vocabulary{
	Name:  "Supervisor",
	About: "a Go supervisor library",
	Words: map[State]string{
		Created: "Created", Pending: "Pending", Starting: "Starting", Ready: "Running", Busy: "Running", Degraded: "Running",
		Suspended: "Suspended", Draining: "Stopping", Stopping: "Stopping",
		Stopped: "Stopped", Finished: "Finished", Failed: "Failed", Killed: "Killed",
	},
	Transitions: slices.Concat(
		moves("Created", "Starting", "Pending"),
		moves("Pending", "Starting", "Stopped"),
		moves("Starting", "Running", "Stopped", "Failed"),
		moves("Running", "Suspended", "Stopping", "Stopped", "Finished", "Failed"),
		moves("Suspended", "Running", "Stopping"),
		moves("Stopping", "Stopped", "Failed", "Killed"),
	),
	Beyond: []Beyond{
		{[]State{Created}, []State{Stopped}, "It has no end for a worker that never started; here a pool may shrink before the first start, which is recorded."},
		{ends, []State{Pending, Starting}, "Its outcomes are final; here the slot continues with its next incarnation."},
		{[]State{Starting}, []State{Stopping}, "Its Starting cannot be cancelled gracefully; here the process is stopped within the grace period."},
		{[]State{Starting}, []State{Finished, Killed}, "It calls every early end Stopped or Failed; here an exit during the handshake is classified like any other."},
		{[]State{Ready, Busy, Degraded}, []State{Killed}, "It kills only while Stopping; here the host may have stopped and killed the process before the worker is notified."},
		{[]State{Suspended}, ends, "It assumes that a suspended worker stays suspended; here the process is kept, so it can still exit."},
	},
}

// RenderPool is the vocabulary of a pool of JavaScript renderers (B).
var RenderPool = Vocabulary{
	Name:  "RenderPool",
	About: "a pool of JavaScript renderers",
	Words: map[State]string{
		Pending: "backoff", Starting: "BOOTING", Ready: "ACTIVE", Busy: "ACTIVE", Degraded: "ACTIVE",
		Draining: "DRAINING", Stopping: "DRAINING", Stopped: "STOPPED", Finished: "STOPPED", Failed: "FAILED", Killed: "STOPPED",
	},
	Transitions: slices.Concat(
		moves("BOOTING", "ACTIVE", "FAILED"),
		moves("FAILED", "BOOTING"),
		moves("ACTIVE", "DRAINING"),
		moves("DRAINING", "STOPPED"),
		moves("STOPPED", "BOOTING"),
	),
	Beyond: []Beyond{
		{[]State{Created}, nil, "It knows a worker only from its boot; a slot here exists before its first process."},
		{ends, []State{Pending}, "Its backoff is a wait between FAILED and BOOTING, not a state; here waiting is a state, and any start may have to wait."},
		{[]State{Pending}, []State{Starting}, "The other end of the same wait."},
		{[]State{Pending}, []State{Stopped}, "Its wait cannot be cancelled; here an operator can cancel it."},
		{[]State{Starting}, []State{Stopping, Stopped, Finished, Killed}, "Its BOOTING ends ACTIVE or FAILED; here a start can be cancelled, and an early exit has its own outcome."},
		{[]State{Ready, Busy, Degraded}, ends, "It ends an ACTIVE worker only by draining it; here an unexpected exit is recorded immediately."},
		{[]State{Draining, Stopping}, []State{Failed}, "It calls every end of a drain STOPPED; here a process that crashes while it stops has failed."},
		{nil, []State{Suspended}, "It cannot pause a worker."},
		{[]State{Suspended}, nil, "It cannot pause a worker, so no transition leaves a pause."},
	},
}

// ends is a copy of the outcomes for the exported lists above, which a caller could write to.
var ends = slices.Clone(outcomes)

func moves(from string, to ...string) []Move {
	list := make([]Move, len(to))
	for i, t := range to {
		list[i] = Move{from, t}
	}
	return list
}

// EventKinds lists every event in the order of a worker's life. The slice is the caller's.
func EventKinds() []EventKind {
	return []EventKind{
		Start, Hold, Release, Stop, StartSucceeded, StartFailed, Exited, Checkout, Checkin, CheckinError, CheckinClose,
		LeaseExpired, ProbeFailed, ProbePassed, Unhealthy, Suspend, Resume, Drain, Drained, DrainTimeout,
	}
}
