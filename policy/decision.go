// Package policy decides when a crashed worker restarts, when a healthy one is rotated, how healthy a worker is and
// will be, how a host's budget is split, and what memory pressure requires.
//
// The package is pure: a decision depends only on its configuration, the observations, the time and the random number
// that the caller passes. So workflows may call it and replay it.
package policy

import "time"

// Action is what to do.
type Action string

// The actions. Each function that decides says which of them it returns.
const (
	Restart Action = "restart" // start the next incarnation after Decision.Delay
	GiveUp  Action = "give_up" // leave the slot down until an operator restarts it, and raise an alert
	Rest    Action = "rest"    // do nothing
	Watch   Action = "watch"   // it was a failure, about which Recovery.Next decides
)

// Decision is what to do, when, and why.
type Decision struct {
	Action Action `json:"action"`
	// Delay is how long to wait first. It is never negative.
	Delay time.Duration `json:"delay,omitempty"`
	// Reason is a sentence for operators, in histories, logs and tempool.
	Reason string `json:"reason"`
}
