package policy

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/tempool/tempool/internal/format"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// backoffJitter spreads each backoff by this fraction up and down, so that workers that crashed together do not restart
// together.
const backoffJitter = 0.10

// Recovery is how a worker restarts after its process ended without a request. An empty Restart is spec.RestartAlways,
// and a MaxConsecutiveFailures of 0 or less never gives up. The delay before the restart after consecutive failure n ≥
// 2 of a short-lived process is BackoffInitial × BackoffMultiplier^(n−2), at most BackoffMax, and BackoffInitial after
// a longer life. A multiplier below 1 counts as 1.
type Recovery spec.Recovery

// AfterEnd decides about the modes of Restart, and about a program that has finished: Rest if the worker starts no next
// process, Restart at once after a clean exit of a life that was not short, and else Watch: it is a failure, about
// which Next decides.
func (r Recovery) AfterEnd(outcome lifecycle.State, shortLived bool, cause string) Decision {
	finished := outcome == lifecycle.Finished
	switch {
	case r.Restart == spec.RestartNever, r.Restart == spec.RestartOnFailure && finished:
		return Decision{Action: Rest, Reason: fmt.Sprintf("Not restarting (recovery.restart = %q): %s", r.Restart, cause)}
	case finished && !shortLived:
		return Decision{Action: Restart, Reason: "Restarting immediately: " + cause}
	}
	return Decision{Action: Watch, Reason: cause}
}

// Next decides what follows consecutive failure number n, as CountFailure counts: Restart, at first immediately and
// later after a backoff, or GiveUp at MaxConsecutiveFailures. shortLived is of the process that failed (IsShortLived).
// cause ends up in the reason. random, in [0,1), moves the delay by ±10 %, so a delay never exceeds BackoffMax × 1.1,
// nor the range of time.Duration.
func (r Recovery) Next(n int, shortLived bool, cause string, random float64) Decision {
	cause = cmp.Or(cause, "unknown cause")
	if r.MaxConsecutiveFailures > 0 && n >= r.MaxConsecutiveFailures {
		return Decision{Action: GiveUp, Reason: fmt.Sprintf(
			"Gave up after %s in a row (recovery.max_consecutive_failures): %s",
			format.Plural(n, "failure"), cause)}
	}
	count := fmt.Sprintf("failure %d", n)
	if r.MaxConsecutiveFailures > 0 {
		count += fmt.Sprintf(" of %d", r.MaxConsecutiveFailures)
	}
	if n <= 1 {
		return Decision{Action: Restart, Reason: fmt.Sprintf("Restarting immediately (%s): %s", count, cause)}
	}
	delay := r.backoff(n, random)
	if !shortLived {
		delay = r.backoff(2, random)
	}
	return Decision{Action: Restart, Delay: delay,
		Reason: fmt.Sprintf("Restarting in %s (%s): %s", shown(delay), count, cause)}
}

// Probation is how long a process has to live before its start counts as a success: after consecutive failure n of a
// short-lived process as long as its backoff, but at least half a second and at most 15 s; else 0. A start that fails
// costs a fraction of the history that a crash of a started worker does.
func (r Recovery) Probation(n int, shortLived bool) time.Duration {
	if n < 1 || !shortLived {
		return 0
	}
	return min(max(r.backoff(max(2, n), 0.5), minProbation), maxProbation)
}

// IsShortLived reports whether a process that lived so long was short-lived. One that was never ready lived for 0.
func (r Recovery) IsShortLived(life time.Duration) bool {
	return life < min(shortLife, r.HealthyReset.D())
}

// StableAfter is how long a process has to live after a crash to count as stable.
const StableAfter = 5 * time.Second

const (
	shortLife    = time.Second
	minProbation = time.Second / 2 // a worker on probation serves, but counts as starting
	maxProbation = 15 * time.Second
)

// CountFailure is the number of consecutive failures including this one: previous + 1, or 1 if the incarnation was
// healthy for HealthyReset or longer. An incarnation that was never ready was healthy for 0.
func (r Recovery) CountFailure(previous int, healthyFor time.Duration) int {
	if previous < 0 || (healthyFor > 0 && healthyFor >= r.HealthyReset.D()) {
		return 1
	}
	return min(previous, math.MaxInt-1) + 1
}

// backoff is computed in floats: an overflow is +Inf, which the bound cuts.
func (r Recovery) backoff(n int, random float64) time.Duration {
	factor := math.Pow(max(1, r.BackoffMultiplier), float64(n-2))
	delay := min(float64(r.BackoffMax), float64(r.BackoffInitial)*factor)
	if !(delay > 0) { // also NaN, from an initial wait of 0 times +Inf
		return 0
	}
	return duration(delay * (1 - backoffJitter + 2*backoffJitter*unit(random)))
}
