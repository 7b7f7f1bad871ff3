package gateway

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
)

const (
	// uncountedBytes is the size up to which a body or an answer is not counted against Limits.BodyBytes: each connection
	// may have as much anyway.
	uncountedBytes = 64 << 10
	// memoryTimeout bounds how long a body waits for memory.
	memoryTimeout = 30 * time.Second
	// stalledAfter is how long a client may read nothing of an answer before the answer can be dropped to free its memory.
	stalledAfter = time.Second
)

// memoryBudget bounds what bodies and answers of all clients occupy.
//
// A body is counted as it arrives, so that an announcement costs nothing. If there is no memory for the rest of a body,
// one body at a time may exceed the total, so that bodies that each hold a part do not wait for each other forever; the
// others wait in the order of their arrival. Answers are in memory already, so they never wait: together they may have
// the total, and if they have it, the answer that its client has left unread for the longest is dropped.
type memoryBudget struct {
	total int64

	mu      sync.Mutex
	bodies  int64
	answers int64
	exceeds *memoryShare // the body that may exceed the total
	waiting []*memoryWaiter
	unread  []*memoryShare // with answers, oldest first
}

// memoryShare is what the request in progress on a connection occupies. The lock of memoryBudget guards it.
type memoryShare struct {
	memory *memoryBudget
	owner  *connection
	body   int64
	answer int64
}

// memoryWaiter is a body that waits for memory.
type memoryWaiter struct {
	share   *memoryShare
	bytes   int64
	granted chan struct{}
}

// growBody waits until there is memory for n more bytes of a body, for at most memoryTimeout.
func (s *memoryShare) growBody(ctx context.Context, n int64) error {
	m := s.memory
	m.mu.Lock()
	if (len(m.waiting) == 0 || m.exceeds == s) && m.grantLocked(s, n) {
		m.mu.Unlock()
		return nil
	}
	w := &memoryWaiter{share: s, bytes: n, granted: make(chan struct{})}
	m.waiting = append(m.waiting, w)
	m.mu.Unlock()
	timer := time.NewTimer(memoryTimeout)
	defer timer.Stop()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	case <-timer.C:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := slices.Index(m.waiting, w)
	if at < 0 {
		return nil // granted at the same moment
	}
	m.waiting = slices.Delete(m.waiting, at, at+1)
	return api.Errorf(api.CodeUnavailable,
		"no memory for the request's body: other requests use all of it (--body-memory)").After(time.Second)
}

func (m *memoryBudget) grantLocked(s *memoryShare, n int64) bool {
	if m.exceeds != s && m.bodies+m.answers+n > m.total {
		if m.exceeds != nil {
			return false
		}
		m.exceeds = s
	}
	m.bodies += n
	s.body += n
	return true
}

// holdAnswer counts an answer of n bytes instead of the request's body. It fails if clients that read leave no memory
// for it.
func (s *memoryShare) holdAnswer(n int64) error {
	s.release()
	if n <= uncountedBytes {
		return nil
	}
	m, now := s.memory, time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.answers > 0 && m.answers+n > m.total {
		victim := m.stalledLocked(now)
		if victim == nil {
			failure := api.Errorf(api.CodeUnavailable,
				"no memory for the answer of %d bytes: other answers that are being read use all of it (--body-memory)",
				n).After(time.Second)
			failure.Started = true
			return failure
		}
		victim.owner.abort()
		m.dropAnswerLocked(victim)
	}
	m.answers += n
	s.answer = n
	s.owner.wrote.Store(now.UnixNano())
	m.unread = append(m.unread, s)
	return nil
}

// stalledLocked is the answer that its client has left unread for the longest, nil if all are being read.
func (m *memoryBudget) stalledLocked(now time.Time) *memoryShare {
	var worst *memoryShare
	oldest := now.Add(-stalledAfter).UnixNano()
	for _, s := range m.unread {
		if wrote := s.owner.wrote.Load(); wrote < oldest {
			worst, oldest = s, wrote
		}
	}
	return worst
}

func (m *memoryBudget) dropAnswerLocked(s *memoryShare) {
	m.answers -= s.answer
	s.answer = 0
	m.unread = slices.DeleteFunc(m.unread, func(o *memoryShare) bool { return o == s })
}

// release frees what the request occupies.
func (s *memoryShare) release() {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.answer > 0 {
		m.dropAnswerLocked(s)
	}
	m.bodies -= s.body
	s.body = 0
	if m.exceeds == s {
		m.exceeds = nil
	}
	for len(m.waiting) > 0 && m.grantLocked(m.waiting[0].share, m.waiting[0].bytes) {
		close(m.waiting[0].granted)
		m.waiting = m.waiting[1:]
	}
}
