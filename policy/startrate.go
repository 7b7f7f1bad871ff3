package policy

import (
	"fmt"
	"time"
)

// StartRate spreads the starts of a pool evenly over time.
type StartRate struct {
	// PerSecond bounds the starts in a second; 0 or less is no bound.
	PerSecond float64
}

// Ask decides about one start: Restart if it may go now, else Wait with the time left. next is from when on a start may go: a start
// that goes moves it on. Time that passed without a start is not made up for, so starts never come in bursts.
func (r StartRate) Ask(next, now time.Time) (time.Time, Decision) {
	if r.PerSecond <= 0 {
		return next, Decision{Action: Restart, Reason: "Starts of this pool are not bounded in time."}
	}
	if wait := next.Sub(now); wait > 0 {
		return next, Decision{Action: Wait, Delay: wait, Reason: fmt.Sprintf(
			"Holding the start for %s: the pool makes at most %g starts a second.", shown(wait), r.PerSecond)}
	}
	return now.Add(duration(float64(time.Second) / r.PerSecond)), Decision{Action: Restart, Reason: "It is this start's turn."}
}
