package policy

import "time"

// StartAtRate returns how long a start of a pool waits, of which at most so many may start per second; 0 permits it,
// and a rate of 0 or less permits all. next is the earliest time of the next start; a start that goes advances it.
// Starts never come in bursts: unused time is lost.
func StartAtRate(perSecond float64, next, now time.Time) (_ time.Time, wait time.Duration) {
	if perSecond <= 0 {
		return next, 0
	}
	if wait := next.Sub(now); wait > 0 {
		return next, wait
	}
	return now.Add(duration(float64(time.Second) / perSecond)), 0
}
