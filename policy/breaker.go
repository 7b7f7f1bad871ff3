package policy

import (
	"fmt"
	"slices"
	"time"
)

// BreakerPause is how long an open breaker waits before it lets one start try, and how far apart the tries of a worker are that tries
// alone.
const BreakerPause = 30 * time.Second

// The breaker's other numbers: it opens when at least breakerFailures starts of the pool failed within breakerWindow and they are at
// least half of all its starts in that time. It waits breakerPatience for the end of a trial; for that of one that tries alone as
// long as it takes, and whoever asks meanwhile is to ask again after breakerRecheck.
const (
	breakerWindow   = time.Minute
	breakerFailures = 5
	breakerPatience = 2 * time.Minute
	breakerGrain    = time.Second
	breakerRecheck  = time.Hour
)

// Breaker keeps a pool whose starts fail from starting again and again. Its zero value is closed: starts go ahead. It is a value
// of bounded size (one tally a second, for a minute), so it may be carried in workflow state; its methods leave the receiver as
// it was.
type Breaker struct {
	// OpenedAt is when the breaker opened; zero means that it is closed.
	OpenedAt time.Time `json:"opened_at,omitzero"`
	// Trial is the worker whose start is trying for all, and TrialAt when it was let go. With Alone it goes on by itself until it
	// serves or gives up, and nobody else tries before that.
	Trial   string    `json:"trial,omitempty"`
	TrialAt time.Time `json:"trial_at,omitzero"`
	Alone   bool      `json:"alone,omitempty"`
	// Tallies count ended starts by the second, oldest first.
	Tallies []Tally `json:"tallies,omitempty"`
}

// Tally counts the starts that ended within one second.
type Tally struct {
	Second time.Time `json:"second"`
	Starts int       `json:"starts"`
	Failed int       `json:"failed"`
}

// Open reports whether starts are held.
func (b Breaker) Open() bool { return !b.OpenedAt.IsZero() }

// Ask decides whether worker may start now: Restart if so, else Wait with the time after which to ask again. While the breaker is
// open one worker at a time is let go to try; its end, told to Recorded, closes or reopens the breaker. The worker that is
// already trying is let go again: it may have lost the answer.
func (b Breaker) Ask(worker string, now time.Time) (Breaker, Decision) {
	if !b.Open() {
		return b, Decision{Action: Restart, Reason: "Starts of this pool are not held."}
	}
	if wait := b.OpenedAt.Add(BreakerPause).Sub(now); wait > 0 {
		return b, Decision{Action: Wait, Delay: wait, Reason: fmt.Sprintf(
			"Holding the start: too many starts of this pool failed, so the next may try in %s.", shown(wait))}
	}
	if b.Trial != "" && b.Trial != worker {
		if b.Alone {
			return b, Decision{Action: Wait, Delay: breakerRecheck, Reason: fmt.Sprintf(
				"Holding the start: too many starts of this pool failed, and %s is trying whether they work again.", b.Trial)}
		}
		if wait := b.TrialAt.Add(breakerPatience).Sub(now); wait > 0 {
			return b, Decision{Action: Wait, Delay: min(wait, BreakerPause), Reason: fmt.Sprintf(
				"Holding the start: too many starts of this pool failed, and %s is trying whether they work again.", b.Trial)}
		}
	}
	b.Trial, b.TrialAt, b.Alone = worker, now, false
	return b, Decision{Action: Restart, Reason: "Starts of this pool failed; this one tries whether they work again."}
}

// TriesAlone makes the trial one that goes on by itself; GaveUp ends it.
func (b Breaker) TriesAlone() Breaker {
	b.Alone = b.Trial != ""
	return b
}

// GaveUp begins the pause anew, because the worker that tried will not come to anything.
func (b Breaker) GaveUp(now time.Time) Breaker { return Breaker{OpenedAt: now} }

// Recorded counts the end of a start. While the breaker is open only the trial's end matters: success closes the breaker with a
// clean record, failure begins the pause anew, but for one that tries alone. Starts that were under way when it opened change nothing.
func (b Breaker) Recorded(worker string, failed bool, now time.Time) Breaker {
	if b.Open() {
		switch {
		case worker != b.Trial, failed && b.Alone:
			return b
		case failed:
			return Breaker{OpenedAt: now}
		}
		return Breaker{}
	}
	b.Tallies = tallied(b.Tallies, failed, now)
	starts, failures := 0, 0
	for _, t := range b.Tallies {
		starts += t.Starts
		failures += t.Failed
	}
	if failures >= breakerFailures && 2*failures >= starts {
		return Breaker{OpenedAt: now}
	}
	return b
}

// tallied is a new list: what is left within the window, and one more start.
func tallied(old []Tally, failed bool, now time.Time) []Tally {
	kept := slices.DeleteFunc(slices.Clone(old), func(t Tally) bool { return now.Sub(t.Second) >= breakerWindow })
	second := now.UTC().Truncate(breakerGrain)
	if len(kept) == 0 || kept[len(kept)-1].Second.Before(second) {
		kept = append(kept, Tally{Second: second})
	}
	last := &kept[len(kept)-1]
	last.Starts++
	if failed {
		last.Failed++
	}
	return kept
}
