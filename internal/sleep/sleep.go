// Package sleep waits for a time or until an end, and wakes a goroutine that waits.
package sleep

import (
	"iter"
	"time"
)

// For waits for d and returns true, or returns false as soon as ended is closed.
func For(ended <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ended:
		return false
	case <-timer.C:
		return true
	}
}

// Ended reports whether ended is closed.
func Ended(ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	default:
		return false
	}
}

// Done runs f on another goroutine, and returns a channel that is closed when f has returned.
func Done(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// Ticks yields the time once per interval until ended is closed.
func Ticks(ended <-chan struct{}, interval time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case now := <-ticker.C:
				if !yield(now) {
					return
				}
			}
		}
	}
}

// Wake puts a value into c, which has room for one, unless one is waiting there already: the goroutine that receives
// from c runs once more.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
