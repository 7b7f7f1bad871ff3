package pool

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tempool/tempool/process/wire"
)

// SetHealth closes an incarnation to calls of its pool for a problem, and opens it again when there is none, for "". A
// client's lease continues.
func (d *Dispatcher) SetHealth(worker string, incarnation int64, problem string) {
	u := d.upstreamOf(worker, incarnation)
	if u == nil {
		return
	}
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	u.degraded = problem
	if problem == "" {
		u.askSoonLocked()
	}
	u.openedLocked()
}

// reportLocked has the worker's workflow notified of calls that fail; replace asks for another process.
func (u *upstream) reportLocked(reason string, replace bool) {
	if report := u.pool.dispatcher.config.Unhealthy; report != nil {
		u.pool.dispatcher.work.Go(func() { report(u.worker, u.incarnation, reason, replace) })
	}
}

// callErrors counts the failed calls of an incarnation.
type callErrors struct {
	inRow    int       // calls in a row that ended in an error which the program did not raise on purpose
	degraded time.Time // when they were too many; zero once a later call was answered
	replaced bool      // as many failed again: no further call counts
}

// errorAction is what the calls of an incarnation require.
type errorAction int

const (
	keep errorAction = iota
	degrade
	replace
)

// count counts a call that was answered, unhandled or well; limit is health.max_call_errors. Calls that had started
// before the incarnation was degraded, and end after that, say nothing new.
func (e *callErrors) count(unhandled bool, started, now time.Time, limit int) errorAction {
	switch {
	case e.replaced, limit <= 0, started.Before(e.degraded):
		return keep
	case !unhandled:
		*e = callErrors{}
		return keep
	}
	if e.inRow++; e.inRow < limit {
		return keep
	}
	e.inRow = 0
	if e.degraded.IsZero() {
		e.degraded = now
		return degrade
	}
	e.replaced = true
	return replace
}

// maxReason bounds what a reason quotes of an error, in bytes.
const maxReason = 500

func shorten(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxReason)], "") }

// countErrorLocked counts a call that ended with err, and acts on too many: no further call of the pool starts on the
// incarnation until it has passed a probe, and its worker is notified.
func (u *upstream) countErrorLocked(c *Call, err error, now time.Time) {
	unhandled := false
	if err != nil { // before the variable, which costs an allocation
		var remote *wire.RemoteError
		if !errors.As(err, &remote) {
			return // cancelled, timed out or crashed
		}
		unhandled = remote.Unhandled
	}
	action := u.errors.count(unhandled, c.startedAt, now, u.spec.Health.MaxCallErrors)
	if action == keep {
		return
	}
	reason := fmt.Sprintf("%d calls in a row failed with an error that the program did not raise on purpose "+
		"(health.max_call_errors); the last one: %s", u.spec.Health.MaxCallErrors, shorten(err.Error()))
	u.degraded = reason
	u.reportLocked(reason, action == replace)
}
