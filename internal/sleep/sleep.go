// Package sleep waits for a time, until an end or for goroutines, and wakes one that waits or all that do.
package sleep

import (
	"iter"
	"time"

	"golang.org/x/sync/errgroup"
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

// Each calls f with 0 to n-1, on at most limit goroutines at once, and waits for them.
func Each(n, limit int, f func(i int)) {
	var group errgroup.Group
	group.SetLimit(limit)
	for i := range n {
		group.Go(func() error { f(i); return nil })
	}
	_ = group.Wait() // the functions return no error
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

// Changes wake all that wait for the next change of something. Their user guards them; the zero value is ready to use.
type Changes struct{ next chan struct{} } // nil while nobody waits

// Next is closed with the next change.
func (c *Changes) Next() <-chan struct{} {
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

// Announce announces a change.
func (c *Changes) Announce() {
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}
