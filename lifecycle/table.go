package lifecycle

import "slices"

// step is one line of the table: in state from, event leads to state to. An empty to stands for the outcome, which
// Outcome reads off the exit.
type step struct {
	from  State
	event EventKind
	to    State
}

// toOutcome marks the steps whose target depends on how the process ended.
const toOutcome State = ""

// table lists every legal transition; all others are illegal.
var table = []step{
	{Created, Start, Starting},
	{Created, Hold, Pending},
	{Created, Stop, Stopped},

	{Pending, Release, Starting},
	{Pending, Stop, Stopped},

	{Starting, StartSucceeded, Ready},
	{Starting, StartFailed, Failed},
	{Starting, Stop, Stopping},
	{Starting, Exited, toOutcome},

	{Ready, Checkout, Busy},
	{Ready, ProbeFailed, Degraded},
	{Ready, Suspend, Suspended},
	{Ready, Drain, Draining},
	{Ready, Stop, Stopping},
	{Ready, Exited, toOutcome},

	{Busy, Checkin, Ready},
	{Busy, CheckinError, Degraded},
	{Busy, CheckinClose, Stopping},
	{Busy, LeaseExpired, Stopping},
	{Busy, Unhealthy, Stopping},
	{Busy, Drain, Draining},
	{Busy, Stop, Stopping},
	{Busy, Exited, toOutcome},

	{Degraded, ProbePassed, Ready},
	{Degraded, Unhealthy, Stopping},
	{Degraded, Suspend, Suspended},
	{Degraded, Drain, Draining},
	{Degraded, Stop, Stopping},
	{Degraded, Exited, toOutcome},

	{Suspended, Resume, Ready},
	{Suspended, Drain, Draining},
	{Suspended, Stop, Stopping},
	{Suspended, Exited, toOutcome},

	{Draining, Drained, Stopping},
	{Draining, DrainTimeout, Stopping},
	{Draining, Stop, Stopping},
	{Draining, Exited, toOutcome},

	{Stopping, Exited, toOutcome},

	{Stopped, Hold, Pending},
	{Stopped, Start, Starting},
	{Finished, Hold, Pending},
	{Finished, Start, Starting},
	{Failed, Hold, Pending},
	{Failed, Start, Starting},
	{Killed, Hold, Pending},
	{Killed, Start, Starting},
}

// Allowed reports whether state s takes event k, and to which state it leads. For Exited, ok says whether s has a
// process that can exit, and to is empty: the answer depends on the exit, and Outcome gives it.
func Allowed(s State, k EventKind) (to State, ok bool) {
	i := slices.IndexFunc(table, func(t step) bool { return t.from == s && t.event == k })
	if i < 0 {
		return "", false
	}
	return table[i].to, true
}
