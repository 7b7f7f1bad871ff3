package policy

import "time"

// StartAtRate decides about one start of a pool, of which at most so many may start per second; 0 or less means no
// limit. It returns Restart if the start may go now, else Wait with the time left. next is the earliest time of the
// next start; a start that goes advances it. Starts never come in bursts: unused time is lost.
func StartAtRate(perSecond float64, next, now time.Time) (time.Time, Decision) {
	if perSecond <= 0 {
		return next, Decision{Action: Restart, Reason: "Starts are not rate-limited."}
	}
	if wait := next.Sub(now); wait > 0 {
		return next, Decision{Action: Wait, Delay: wait}
	}
	return now.Add(duration(float64(time.Second) / perSecond)),
		Decision{Action: Restart, Reason: "Start permitted by start.rate_per_second."}
}
