package policy

import (
	"fmt"
	"math"
	"time"
)

// backoffJitter spreads each backoff by this fraction up and down, so that workers that crashed together do not come back
// together.
const backoffJitter = 0.10

// Recovery says how a worker whose incarnation ended unasked comes back.
type Recovery struct {
	// MaxConsecutiveFailures in a row make the worker give up: with 10, the tenth failure is the last. 0 or less is never.
	MaxConsecutiveFailures int
	// The wait before the restart after failure n ≥ 2 in a row is BackoffInitial × BackoffMultiplier^(n−2), at most BackoffMax.
	// A multiplier below 1 counts as 1.
	BackoffInitial    time.Duration
	BackoffMax        time.Duration
	BackoffMultiplier float64
	// HealthyReset of good life clears the count of failures.
	HealthyReset time.Duration
}

// Next decides what follows the failure number failuresInARow, which Counted gives. The first restarts at once, the later ones
// back off, the one that reaches MaxConsecutiveFailures gives up; the action is Restart or GiveUp. cause says what happened, in a
// phrase that ends up in the reason. random, in [0,1), moves the delay within ±10 %, so a delay never exceeds BackoffMax × 1.1,
// and never what a time.Duration holds, whatever the settings.
func (r Recovery) Next(failuresInARow int, cause string, random float64) Decision {
	if cause == "" {
		cause = "the cause is not known"
	}
	if r.MaxConsecutiveFailures > 0 && failuresInARow >= r.MaxConsecutiveFailures {
		return Decision{Action: GiveUp, Reason: fmt.Sprintf(
			"Gave up after %s in a row; the slot stays empty until an operator restarts it. Last cause: %s",
			counted(failuresInARow, "failure"), cause)}
	}
	if failuresInARow <= 1 {
		return Decision{Action: Restart, Reason: fmt.Sprintf("Restarting at once after a first failure%s: %s", r.ofHowMany(), cause)}
	}
	delay := r.backoff(failuresInARow, random)
	return Decision{Action: Restart, Delay: delay, Reason: fmt.Sprintf(
		"Restarting in %s after failure %d%s in a row: %s", shown(delay), failuresInARow, r.ofHowMany(), cause)}
}

// Tries is how many tries a start may make before somebody has to wait longer than most for the next one, or gives up: at least 1.
// failuresInARow come before the first.
func (r Recovery) Tries(failuresInARow int, most time.Duration) int {
	for n := 1; n < MaxTries; n++ {
		failed := failuresInARow + n
		if r.MaxConsecutiveFailures > 0 && failed >= r.MaxConsecutiveFailures || failed > 1 && r.backoff(failed, 1) > most {
			return n
		}
	}
	return MaxTries
}

// MaxTries bounds the tries of one start.
const MaxTries = 8

// Probation is how long a process has to live before its start counts as one, after so many failures in a row: as long as it was held
// back, within bounds. A first failure asks for none, unless it was brief: whoever crashed once, after a while, is to be back at once.
func (r Recovery) Probation(failuresInARow int, brief bool) time.Duration {
	if failuresInARow < 1 || failuresInARow == 1 && !brief {
		return 0
	}
	return min(max(r.backoff(max(2, failuresInARow), 0.5), leastProbation), longestProbation)
}

// Brief reports whether a life of that length is too short to tell that the process works: it would not have passed the least probation, and
// does not count as healthy. One that was never ready lived for 0.
func (r Recovery) Brief(life time.Duration) bool { return life < min(leastProbation, r.HealthyReset) }

// SettledAfter is how long a process has to live after a crash to be taken for one that will go on.
const SettledAfter = 5 * time.Second

const (
	leastProbation   = time.Second
	longestProbation = 15 * time.Second
)

// Counted is the number of failures in a row, this one included: one more than previous, or 1 if the incarnation had been
// healthy for HealthyReset or longer. An incarnation that was never ready was healthy for 0 and clears nothing.
func (r Recovery) Counted(previous int, healthyFor time.Duration) int {
	if previous < 0 || (healthyFor > 0 && healthyFor >= r.HealthyReset) {
		return 1
	}
	return min(previous, math.MaxInt-1) + 1
}

// backoff is computed in floats: a power too large for them is +Inf, which the bound then cuts.
func (r Recovery) backoff(n int, random float64) time.Duration {
	factor := math.Pow(max(1, r.BackoffMultiplier), float64(n-2))
	delay := min(float64(r.BackoffMax), float64(r.BackoffInitial)*factor)
	if !(delay > 0) { // also NaN, from an initial wait of 0 times +Inf
		return 0
	}
	return duration(delay * (1 - backoffJitter + 2*backoffJitter*unit(random)))
}

func (r Recovery) ofHowMany() string {
	if r.MaxConsecutiveFailures <= 0 {
		return ""
	}
	return fmt.Sprintf(" of at most %d", r.MaxConsecutiveFailures)
}
