package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
)

const (
	// maxControlBody bounds the JSON body of a request that is not a call.
	maxControlBody = 1 << 20
	// bodyIdleTimeout bounds how long a client may send nothing of a body.
	bodyIdleTimeout = 15 * time.Second
)

// readBody reads a body of at most limit bytes; its memory is freed at the end of the request. It fails with
// CodePayloadTooLarge for a larger body, and with CodeUnavailable if other requests use all of Limits.BodyBytes, at the
// latest by the given time.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, by time.Time) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, pool.TooLarge(limit)
	}
	in := bodyReader{in: r.Body, w: w, limit: limit, until: time.Now().Add(requestTimeout(r))}
	size := r.ContentLength
	if size < 0 {
		in.in = http.MaxBytesReader(w, r.Body, limit)
		size = limit + 1 // one more, so that the reader reports a body that is too large
	}
	var body []byte
	share := connectionOf(r).share
	for int64(len(body)) < size {
		if len(body) == cap(body) {
			larger := nextCapacity(int64(cap(body)), size, r.ContentLength >= 0)
			if larger > uncountedBytes {
				ctx, stop := context.WithDeadline(r.Context(), by)
				err := share.growBody(ctx, larger-share.body)
				stop()
				if err != nil {
					return nil, err
				}
			}
			body = append(make([]byte, 0, larger), body...)
		}
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) && (r.ContentLength < 0 || int64(len(body)) == size) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if body == nil {
		body = []byte{}
	}
	connectionOf(r).body = body // if the request must be forwarded
	return body, nil
}

// nextCapacity is how much to allocate for a body of which now bytes have arrived. An announced size is believed up to
// uncountedBytes.
func nextCapacity(now, size int64, announced bool) int64 {
	if announced {
		return min(size, max(uncountedBytes, 2*now))
	}
	return min(size, max(4<<10, 2*now))
}

// bodyReader reads a body whose client must send something within each bodyIdleTimeout, and everything until a time.
// Its failures but io.EOF have codes.
type bodyReader struct {
	in    io.Reader
	w     http.ResponseWriter
	limit int64 // of in, if that is an http.MaxBytesReader
	until time.Time
	reads int
}

func (r *bodyReader) Read(p []byte) (int, error) {
	control := http.NewResponseController(r.w)
	if r.reads++; r.reads > 1 { // most bodies come with their headers
		by := time.Now().Add(bodyIdleTimeout)
		if by.After(r.until) {
			by = r.until
		}
		_ = control.SetReadDeadline(by)
	}
	n, err := r.in.Read(p)
	if errors.Is(err, io.EOF) {
		_ = control.SetReadDeadline(time.Time{}) // the client has sent all, and waits for its answer
	} else if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		err = pool.TooLarge(r.limit)
	} else if err != nil {
		err = api.Errorf(api.CodeInvalid, "cannot read the request's body: %w", err)
	}
	return n, err
}

// readSmall reads a body of at most limit bytes that is not a call's; advice completes the error of a larger one.
func readSmall(w http.ResponseWriter, r *http.Request, limit int64, advice string) ([]byte, error) {
	body, err := readBody(w, r, limit, time.Now().Add(requestTimeout(r)))
	if errors.Is(err, api.ErrPayloadTooLarge) {
		return nil, api.Errorf(api.CodePayloadTooLarge, "the body is larger than %d bytes%s", limit, advice)
	}
	return body, err
}

// readJSON reads a body of one JSON object without unknown keys. An empty body is an empty object.
func readJSON(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := readSmall(w, r, maxControlBody, "")
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}
	if err := decodeOnly(body, into); err != nil {
		return api.Errorf(api.CodeInvalid, "the body is not the expected JSON: %w", err)
	}
	return nil
}

// decodeOnly decodes JSON text of one value without unknown keys.
func decodeOnly(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF { // it is never wrapped
		return errors.New("something follows the JSON value")
	}
	return nil
}

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
	ctx, cancel := context.WithTimeout(ctx, memoryTimeout)
	defer cancel()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := slices.Index(m.waiting, w)
	if at < 0 {
		return nil // granted at the same moment
	}
	m.waiting = slices.Delete(m.waiting, at, at+1)
	m.grantWaitingLocked()
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
	m.grantWaitingLocked()
}

func (m *memoryBudget) grantWaitingLocked() {
	for len(m.waiting) > 0 && m.grantLocked(m.waiting[0].share, m.waiting[0].bytes) {
		close(m.waiting[0].granted)
		m.waiting = m.waiting[1:]
	}
}
