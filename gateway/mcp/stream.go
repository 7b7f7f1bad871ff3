package mcp

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/internal/sleep"
)

// maxUnsent bounds what waits in a stream, in bytes; one message of any size may.
const maxUnsent = 1 << 20

// stream are the messages for one request of a client, in order: the answer to a POST is the last one.
type stream struct {
	wake chan struct{} // has a token when there is something new

	mu     sync.Mutex
	unsent [][]byte
	bytes  int
	closed bool
	status int // of the answer that finishes it, if nothing was sent before; 0 for 200
}

func newStream() *stream { return &stream{wake: make(chan struct{}, 1)} }

// push adds a message. It reports false if the stream has ended, or the client reads too slowly.
func (o *stream) push(message []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.bytes > 0 && o.bytes+len(message) > maxUnsent {
		return false
	}
	o.addLocked(message)
	return true
}

// finish ends the stream, after a last message if there is one.
func (o *stream) finish(last []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.addLocked(last)
		o.closed = true
	}
}

func (o *stream) addLocked(message []byte) {
	if message != nil {
		o.unsent, o.bytes = append(o.unsent, message), o.bytes+len(message)
	}
	sleep.Wake(o.wake)
}

// state is the number of messages that wait, and whether no more follow.
func (o *stream) state() (unsent int, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.unsent), o.closed
}

func (o *stream) take() (messages [][]byte, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	messages, o.unsent, o.bytes = o.unsent, nil, 0
	return messages, o.closed
}

// send writes the stream as events until it ends, the client leaves or ctx ends. hold counts what is being written.
func (o *stream) send(ctx context.Context, w http.ResponseWriter, keepAlive time.Duration, hold func(int64) error) {
	header, out := w.Header(), http.NewResponseController(w)
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	quiet := time.NewTicker(keepAlive)
	defer quiet.Stop()
	for {
		messages, closed := o.take()
		for _, message := range messages {
			if hold(int64(len(message))) != nil {
				return
			}
			for _, part := range [][]byte{[]byte("event: message\ndata: "), message, []byte("\n\n")} {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
		}
		if out.Flush() != nil || closed {
			return
		}
		select {
		case <-o.wake:
		case <-quiet.C:
			_, _ = w.Write([]byte(": keep-alive\n\n")) // Flush reports a failure
		case <-ctx.Done():
			return
		}
	}
}

// writeJSON answers with one message.
func writeJSON(w http.ResponseWriter, status int, message []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(message) // fails only if the client is gone
}

// writeFailure answers with an error that concerns no request.
func writeFailure(w http.ResponseWriter, f *failure) {
	writeJSON(w, f.status, response(json.RawMessage("null"), nil, f))
}

const (
	typeJSON = "application/json"
	typeSSE  = "text/event-stream"
)

// accepts reports whether the client takes answers of a type; without a header Accept it takes all.
func accepts(h http.Header, want string) bool {
	values := h.Values("Accept")
	return len(values) == 0 || slices.ContainsFunc(strings.Split(strings.Join(values, ","), ","), func(part string) bool {
		kind, _, _ := mime.ParseMediaType(part)
		family, _, _ := strings.Cut(want, "/")
		return kind == want || kind == "*/*" || kind == family+"/*"
	})
}
