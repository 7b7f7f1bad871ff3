package mcp

import (
	"context"
	"io"
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
	wake   chan struct{} // has a token when there is something new
	isGet  bool
	prime  bool   // the client takes an event without data first, so that it can resume before there is one with data
	cancel func() // of its request, if the client may come back for the answer

	// Of a stream that can be resumed.
	kept        *kept // nil for any other one
	number      int64
	tag, suffix string // of the ids of its events

	mu         sync.Mutex
	unsent     []event
	bytes      int
	closed     bool
	status     int         // of the answer that finishes it, if nothing was sent before; 0 for 200
	sent       int64       // the number of the newest event that was sent, or kept
	connection int64       // the number of the newest one, 0 before the first
	away       bool        // there is none, and what comes is kept
	orphan     *time.Timer // calls cancel
}

func newStream() *stream { return &stream{wake: make(chan struct{}, 1)} }

// push adds a message. It reports false if the stream has ended, or the client reads too slowly.
func (o *stream) push(message []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.bytes > 0 && o.bytes+len(message) > maxUnsent {
		return false
	}
	o.addLocked(event{message: message})
	return true
}

// finish ends the stream, after a last message if there is one.
func (o *stream) finish(last []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.addLocked(event{message: last, last: true})
		o.closed = true
	}
}

func (o *stream) addLocked(e event) {
	switch {
	case e.message == nil:
	case o.away:
		o.numberLocked(&e)
	default:
		o.unsent, o.bytes = append(o.unsent, e), o.bytes+len(e.message)
	}
	sleep.Wake(o.wake)
}

// state is the number of messages that wait, and whether no more follow.
func (o *stream) state() (unsent int, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.unsent), o.closed
}

// take returns what waits for a connection, which is then sent; nothing if another one has taken its place. The
// connection 0 is that of an answer without events.
func (o *stream) take(connection int64) (events []event, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.connection != connection {
		sleep.Wake(o.wake) // the token was the other one's
		return nil, true
	}
	events, o.unsent, o.bytes = o.unsent, nil, 0
	for i := range events {
		if o.kept != nil && connection > 0 {
			o.numberLocked(&events[i])
		}
	}
	return events, o.closed
}

// send writes the stream as events until it ends, the client leaves or ctx ends, and returns the number of its
// connection. hold counts what is being written.
func (o *stream) send(ctx context.Context, w http.ResponseWriter, keepAlive time.Duration,
	hold func(int64) error) (connection int64) {
	o.mu.Lock()
	o.connection++
	connection = o.connection
	o.mu.Unlock()
	header, out := w.Header(), http.NewResponseController(w)
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	quiet := time.NewTicker(keepAlive)
	defer quiet.Stop()
	if o.prime && o.kept != nil && connection == 1 {
		_, _ = io.WriteString(w, "id: "+o.eventID(0)+"\ndata: \n\n") // Flush reports a failure
	}
	for {
		events, closed := o.take(connection)
		for _, e := range events {
			if hold(int64(len(e.message))) != nil {
				return connection
			}
			begin := "event: message\ndata: "
			if o.kept != nil {
				begin = "id: " + o.eventID(e.number) + "\n" + begin
			}
			for _, part := range [][]byte{[]byte(begin), e.message, []byte("\n\n")} {
				if _, err := w.Write(part); err != nil {
					return connection
				}
			}
		}
		if out.Flush() != nil || closed || hold(0) != nil { // what is flushed needs no memory here
			return connection
		}
		select {
		case <-o.wake:
		case <-quiet.C:
			_, _ = w.Write([]byte(": keep-alive\n\n")) // Flush reports a failure
		case <-ctx.Done():
			return connection
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
