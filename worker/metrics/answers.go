package metrics

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

const (
	// answerTTL is how long an answer is reused at least, so that many scrapers cost one question, and the time until a
	// question that failed is asked again.
	answerTTL = 5 * time.Second
	// askedAtOnce is how many questions of one scrape run at once.
	askedAtOnce = 8

	// statusMaxAge is the age at which the last status of a pool is dropped while no newer one arrives, and statusTimeout
	// is how long a scrape waits for newer ones.
	statusMaxAge  = time.Minute
	statusTimeout = 2 * time.Second

	// questionsTimeout ends the questions of one scrape, which go on after it for the next: a busy Temporal answers those
	// about many pools in more time than a scrape has.
	questionsTimeout = statusMaxAge / 2

	// lengthMaxAge is the age at which the length of a history is requested again, and lengthsPerScrape bounds how many
	// lengths one scrape asks for.
	lengthMaxAge     = time.Minute
	lengthsPerScrape = 64

	// liveTimeout bounds how long a scrape waits for the stores to count their sessions.
	liveTimeout = time.Second
)

// answers remember what a scrape asks others, by name. A question leaves no trace in a workflow's history.
type answers[T any] struct {
	ask    func(ctx context.Context, name string) (T, error)
	within time.Duration // a scrape waits for them
	ttl    time.Duration // after which an answer is asked for again, the oldest first
	most   int           // questions of one scrape; 0 is no bound
	maxAge time.Duration // at which an answer is dropped; 0 is never
	keep   bool          // names that were read before, until ErrPoolNotFound; else they are forgotten

	mu     sync.Mutex
	known  map[string]answer[T]
	asking <-chan struct{} // closed when the questions under way have ended; nil if there are none
}

type answer[T any] struct {
	value     T
	at, asked time.Time // at is zero while there is none
}

// newPoolStatuses know the status of pools; read returns those of the pools read before, too, that still run.
func newPoolStatuses(query func(ctx context.Context, pool string) (api.PoolStatus, error)) *answers[api.PoolStatus] {
	return &answers[api.PoolStatus]{ask: query, within: statusTimeout, ttl: answerTTL, maxAge: statusMaxAge, keep: true}
}

// newHistoryLengths know how long the histories of workflows are, by workflow ID. Asking costs the server one read of
// its cache.
func newHistoryLengths(describe func(ctx context.Context, workflowID string) (int64, error)) *answers[int64] {
	return &answers[int64]{ask: describe, within: statusTimeout, ttl: lengthMaxAge, most: lengthsPerScrape}
}

// newLiveSessions count the sessions of the stores, under the name "".
func newLiveSessions(count func(ctx context.Context) map[string]int) *answers[map[string]int] {
	return &answers[map[string]int]{within: liveTimeout, ttl: answerTTL,
		ask: func(ctx context.Context, _ string) (map[string]int, error) { return count(ctx), nil }}
}

// read returns the known answers about names. While reachable is false it asks nothing; else concurrent readers share
// the questions.
func (a *answers[T]) read(names []string, reachable bool) map[string]T {
	a.mu.Lock()
	defer a.mu.Unlock()
	wanted := make(map[string]answer[T], len(names))
	for _, name := range names {
		wanted[name] = a.known[name]
	}
	for name, one := range a.known {
		if a.keep && !one.at.IsZero() {
			wanted[name] = one
		}
	}
	a.known = wanted
	if reachable && a.askLocked() {
		asking := a.asking
		a.mu.Unlock()
		sleep.For(asking, a.within)
		a.mu.Lock()
	}
	current := make(map[string]T, len(a.known))
	for name, one := range a.known {
		if !one.at.IsZero() && (a.maxAge == 0 || time.Since(one.at) < a.maxAge) {
			current[name] = one.value
		}
	}
	return current
}

// askLocked asks what is due, unless earlier questions are under way, and reports whether any are. The last answer of
// one that does not answer stays.
func (a *answers[T]) askLocked() bool {
	if a.asking != nil {
		return true
	}
	now := time.Now()
	var due []string
	for name, one := range a.known {
		if now.Sub(one.at) >= a.ttl && now.Sub(one.asked) >= answerTTL {
			due = append(due, name)
		}
	}
	if len(due) == 0 {
		return false
	}
	slices.SortFunc(due, func(x, y string) int { return a.known[x].at.Compare(a.known[y].at) })
	due = due[:min(len(due), cmp.Or(a.most, len(due)))]
	a.asking = sleep.Done(func() {
		ctx, cancel := context.WithTimeout(context.Background(), questionsTimeout)
		defer cancel()
		sleep.Each(len(due), askedAtOnce, func(i int) {
			value, err := a.ask(ctx, due[i])
			a.mu.Lock()
			defer a.mu.Unlock()
			one, wanted := a.known[due[i]]
			switch {
			case !wanted:
				return
			case err == nil:
				one = answer[T]{value: value, at: time.Now()}
			case errors.Is(err, api.ErrPoolNotFound):
				one = answer[T]{}
			}
			one.asked = time.Now()
			a.known[due[i]] = one
		})
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asking = nil
	})
	return true
}
