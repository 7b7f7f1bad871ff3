package policy

import (
	"slices"
	"time"
)

// BreakerPause is how long an open breaker waits before it permits a trial, and the minimum delay between the attempts
// of a worker that tries alone.
const BreakerPause = 30 * time.Second

// The breaker opens when at least breakerFailures starts of the pool failed within breakerWindow, and these are at
// least half of all its starts in that time. During a trial, other workers ask again after trialRecheck.
const (
	breakerWindow   = time.Minute
	breakerFailures = 5
	breakerGrain    = time.Second
	trialRecheck    = 10 * time.Minute
)

// Breaker holds the starts of a pool while too many of them fail. The zero value is closed: starts go ahead. It is a
// value of bounded size (one tally per second, for a minute), fit for workflow state; its methods do not change the
// receiver.
type Breaker struct {
	// OpenedAt is when the breaker opened; zero means that it is closed.
	OpenedAt time.Time `json:"opened_at,omitzero"`
	// Trial is the worker whose start tests whether starts work again, TrialAt when it was permitted. It retries without
	// asking until it is ready or gives up, and no other worker starts before that. While the breaker is closed, Trial is
	// the worker of a trial that an operator ended, until it reports.
	Trial   string    `json:"trial,omitempty"`
	TrialAt time.Time `json:"trial_at,omitzero"`
	// Counts count ended starts by the second, oldest first.
	Counts []StartCount `json:"counts,omitempty"`
}

// StartCount counts the starts that ended within one second.
type StartCount struct {
	Second time.Time `json:"second"`
	Starts int       `json:"starts"`
	Failed int       `json:"failed"`
}

// Open reports whether starts are held.
func (b Breaker) Open() bool { return !b.OpenedAt.IsZero() }

// Ask returns how long worker waits before it asks again; 0 permits its start. While the breaker is open it permits the
// starts of one worker, the trial, until Record takes a success of it, which closes the breaker, or GaveUp. The trial's
// worker is permitted again: the first permit may be lost.
func (b Breaker) Ask(worker string, now time.Time) (_ Breaker, wait time.Duration) {
	if !b.Open() {
		return b, 0
	}
	if wait := b.OpenedAt.Add(BreakerPause).Sub(now); wait > 0 {
		return b, wait
	}
	if b.Trial != "" && b.Trial != worker {
		return b, trialRecheck
	}
	b.Trial, b.TrialAt = worker, now
	return b, 0
}

// GaveUp restarts the pause: the trial's worker will not start.
func (b Breaker) GaveUp(now time.Time) Breaker { return Breaker{OpenedAt: now} }

// Record counts the end of a start. While the breaker is open only a success of the trial counts: it closes the breaker
// and clears the counts.
func (b Breaker) Record(worker string, failed bool, now time.Time) Breaker {
	if b.Open() {
		if worker != b.Trial || failed {
			return b
		}
		return Breaker{}
	}
	b.Counts = addStart(b.Counts, failed, now)
	starts, failures := 0, 0
	for _, t := range b.Counts {
		starts += t.Starts
		failures += t.Failed
	}
	if failures >= breakerFailures && 2*failures >= starts {
		return Breaker{OpenedAt: now}
	}
	return b
}

// addStart is a new list: the counts within the window, and one more start.
func addStart(old []StartCount, failed bool, now time.Time) []StartCount {
	kept := slices.DeleteFunc(slices.Clone(old), func(t StartCount) bool { return now.Sub(t.Second) >= breakerWindow })
	second := now.UTC().Truncate(breakerGrain)
	if len(kept) == 0 || kept[len(kept)-1].Second.Before(second) {
		kept = append(kept, StartCount{Second: second})
	}
	last := &kept[len(kept)-1]
	last.Starts++
	if failed {
		last.Failed++
	}
	return kept
}
