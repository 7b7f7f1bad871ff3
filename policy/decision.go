// Package policy decides: when a crashed worker comes back, when a healthy one is replaced, how well a worker is, whether it will
// be, who gets how much of a host, and what the host's memory pressure calls for.
//
// The package is pure: from configuration, observations, a time and, where chance is wanted, a random number to a decision. It
// reads no clock, draws no number and does no I/O, so workflows may call it and replay to the same end.
package policy

import "time"

// Action is what a decision asks for.
type Action string

// The actions. A decision's function says which of them it may give.
const (
	Restart Action = "restart" // begin the next incarnation, after Decision.Delay
	GiveUp  Action = "give_up" // let the slot rest until an operator restarts it, and raise an alert
	Rest    Action = "rest"    // leave things as they are
	Wait    Action = "wait"    // do not start now; ask again after Decision.Delay
	Watch   Action = "watch"   // nothing to do yet, but this one bears watching
)

// Decision is what to do, when, and why.
type Decision struct {
	Action Action `json:"action"`
	// Delay is how long to wait first; 0 is at once. It is never negative.
	Delay time.Duration `json:"delay,omitempty"`
	// Reason is a full sentence for the person who reads it at three in the morning, in a history, a log or ctl.
	Reason string `json:"reason"`
}
