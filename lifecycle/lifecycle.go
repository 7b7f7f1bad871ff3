// Package lifecycle is the state machine of a pool worker: the states of a worker, the events that change them, and the
// record of each transition.
//
// The package is pure. It reads no clock, draws no random number and does no I/O: the caller brings the time, so a
// workflow replays to the same machine and a test needs no clock. The table of allowed steps is written once, in
// table.go; everything else (Next, Allowed, the diagram in docs/lifecycle.md) reads it.
package lifecycle

import "slices"

// State is what a worker is doing. Its text is part of the wire format.
type State string

// The states, in the order of a worker's life.
const (
	Created   State = "created"   // the workflow exists, nothing was started
	Pending   State = "pending"   // the start is held: backoff, start rate, open breaker, no host with capacity
	Starting  State = "starting"  // the process is spawned; handshake and warm-up run
	Ready     State = "ready"     // idle and healthy: the one state that can be leased
	Busy      State = "busy"      // leased
	Degraded  State = "degraded"  // alive, but a probe failed or a lease ended in error
	Suspended State = "suspended" // paused by an operator; process and memory are kept
	Draining  State = "draining"  // no new lease; what is in flight finishes
	Stopping  State = "stopping"  // asked to exit: TERM, then KILL after the grace
	Stopped   State = "stopped"   // outcome: ended cleanly because it was asked to
	Finished  State = "finished"  // outcome: exited with code 0 without a request
	Failed    State = "failed"    // outcome: ended with an error, a non-zero code or a signal that was not ours
	Killed    State = "killed"    // outcome: did not stop within its grace and was killed
)

var (
	live     = []State{Starting, Ready, Busy, Degraded, Suspended, Draining, Stopping}
	outcomes = []State{Stopped, Finished, Failed, Killed}
)

// States lists every state in the order of a worker's life. The slice is the caller's.
func States() []State {
	return slices.Concat([]State{Created, Pending}, live, outcomes)
}

// InService reports whether a worker in this state serves calls: Ready or Busy.
func (s State) InService() bool { return s == Ready || s == Busy }

// Live reports whether a process of the current incarnation may exist: from Starting to Stopping.
func (s State) Live() bool { return slices.Contains(live, s) }

// Outcome reports whether the state is the end of an incarnation: Stopped, Finished, Failed or Killed. It is not the
// end of the worker, which may begin its next incarnation from here.
func (s State) Outcome() bool { return slices.Contains(outcomes, s) }

// Health is the result of a worker's probes. It is independent of State.
type Health string

// Unhealthy, the third health, is the untyped constant declared with the events.
const (
	Unknown Health = "unknown" // no process, or none that has answered yet
	Healthy Health = "healthy" // the last probe passed, or the handshake has just done
)

// EventKind names what happened to a worker. Its text is part of the wire format.
type EventKind string

// The events. Allowed says which of them a state takes.
const (
	Start          EventKind = "start"         // begin the next incarnation: a process is being spawned
	Hold           EventKind = "hold"          // begin the next incarnation, but hold its start
	Release        EventKind = "release"       // the held start may go
	Stop           EventKind = "stop"          // stop the process
	StartSucceeded EventKind = "started"       // handshake and warm-up are done
	StartFailed    EventKind = "start_failed"  // spawning, handshake or warm-up failed or timed out
	Exited         EventKind = "exited"        // the process has ended; Event.Exit says how
	Checkout       EventKind = "checkout"      // a lease was granted
	Checkin        EventKind = "checkin"       // the lease was released without an error
	CheckinError   EventKind = "checkin_error" // the lease ended in error, below the failure limit
	CheckinClose   EventKind = "checkin_close" // the holder requested a new process
	LeaseExpired   EventKind = "lease_expired" // the state of the process is unknown
	ProbeFailed    EventKind = "probe_failed"  // a probe failed while idle, below the failure limit
	ProbePassed    EventKind = "probe_passed"  // a degraded worker answers again
	Suspend        EventKind = "suspend"       // an operator pauses the worker
	Resume         EventKind = "resume"        // an operator resumes the worker
	Drain          EventKind = "drain"         // grant no lease and finish the calls in flight
	Drained        EventKind = "drained"       // no call is in flight
	DrainTimeout   EventKind = "drain_timeout" // a call is still in flight after the drain timeout
)

// NoteKind names a recorded decision that changes no state. Its text is in a Transition's Event; no state accepts it.
type NoteKind string

// The notes.
const (
	RotationFailed   NoteKind = "rotation_failed" // the next process failed to start; this one stays in service
	RotationObserved NoteKind = "observed"        // policy.mode = "observe" did not carry out a rotation
	GaveUp           NoteKind = "gave_up"         // the worker failed too often and waits for an operator
	LimitsApplied    NoteKind = "limits_applied"  // the process has new limits: its share of the host's budget
	ProcessKilled    NoteKind = "process_killed"  // a process that was replaced did not stop within its grace
	// the program's hook of a suspension or resumption failed, or its tree was not frozen
	HookFailed NoteKind = "hook_failed"
	TakenOver  NoteKind = "taken_over" // the host's next agent took the process over
)

// Unhealthy is both an event (the failure limit was reached, the process must be replaced) and a health. The one word
// stands for both, so the constant is untyped: it fits an EventKind and a Health alike.
const Unhealthy = "unhealthy"

// Event is one thing that happened, as Next takes it.
type Event struct {
	Kind EventKind `json:"kind"`
	// Reason is a sentence for the record. An Exited event without one is recorded with Exit's own sentence.
	Reason string `json:"reason,omitempty"`
	// Metadata goes into the record as it is; Next copies it. An Exited event without one is recorded with Exit's.
	Metadata map[string]string `json:"metadata,omitempty"`
	// Exit decides the outcome. It is required if Kind is Exited, and ignored otherwise.
	Exit *Exit `json:"exit,omitempty"`
}
