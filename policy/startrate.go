package policy

import "time"

// StartRate spreads the starts of a pool evenly over time.
type StartRate struct {
	// PerSecond is the maximum number of starts per second; 0 or less means no limit.
	PerSecond float64
}

// Ask decides about one start: Restart if it may go now, else Wait with the time left. next is the earliest time of the
// next start; a start that goes advances it. Starts never come in bursts: unused time is lost.
func (r StartRate) Ask(next, now time.Time) (time.Time, Decision) {
	if r.PerSecond <= 0 {
		return next, Decision{Action: Restart, Reason: "Starts are not rate-limited."}
	}
	if wait := next.Sub(now); wait > 0 {
		return next, Decision{Action: Wait, Delay: wait}
	}
	return now.Add(duration(float64(time.Second) / r.PerSecond)),
		Decision{Action: Restart, Reason: "Start permitted by start.rate_per_second."}
}
