package ui

import (
	"context"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
)

const (
	// freshFor is how long viewers share an answer of the control plane.
	freshFor = time.Second
	// askTimeout bounds one question to the control plane, so that a page answers while Temporal does not, and
	// briefTimeout does if the agent knows that Temporal does not answer.
	askTimeout, briefTimeout = 4 * time.Second, time.Second
	// forgetAfter is how long an answer is kept that nobody requests.
	forgetAfter = 10 * time.Minute
)

// memo remembers an answer: viewers who come at the same time ask once, and the last good answer is shown while there
// is no new one.
type memo[T any] struct {
	mu     sync.Mutex // held during a question
	asked  time.Time  // the end of the last question
	err    error      // its failure
	good   T
	goodAt time.Time // zero without any good answer
	used   time.Time // guarded by the lock of memos
}

// answer is an answer of the control plane. With an error, value is the last good one, as of at; a zero at means that
// there was none.
type answer[T any] struct {
	value T
	at    time.Time
	err   error
}

// get asks at most once in freshFor, with a timeout, and not once ctx has ended.
func (m *memo[T]) get(ctx context.Context, timeout time.Duration, ask func(context.Context) (T, error)) answer[T] {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil && time.Since(m.asked) >= freshFor {
		return answer[T]{m.good, m.goodAt, err}
	}
	if time.Since(m.asked) >= freshFor {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout) // others wait for the answer, too
		value, err := ask(ctx)
		cancel()
		if m.asked, m.err = time.Now(), err; err == nil {
			m.good, m.goodAt = value, m.asked
		}
	}
	return answer[T]{m.good, m.goodAt, m.err}
}

// memos are what all viewers share.
type memos struct {
	hosts memo[[]host]
	names memo[[]string]

	mu    sync.Mutex
	pools map[string]*memo[api.PoolStatus]
}

// pool is the memo of a pool. Those that nobody asked for lately are forgotten.
func (m *memos) pool(name string) *memo[api.PoolStatus] {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	found := m.pools[name]
	if found == nil {
		for other, old := range m.pools {
			if now.Sub(old.used) > forgetAfter {
				delete(m.pools, other)
			}
		}
		found = &memo[api.PoolStatus]{}
		m.pools[name] = found
	}
	found.used = now
	return found
}

// forget drops a pool whose name nobody should be able to fill the memory with.
func (m *memos) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pools, name)
}
