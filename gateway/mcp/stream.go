package mcp

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/internal/sleep"
)

// maxUnsent bounds what waits in a stream, in bytes; one message of any size may.
const maxUnsent = 1 << 20

// stream is a log of the messages for one request of a client, whose answer is the last one, or for a GET. Its events
// have numbers from 1. At most one connection reads it: the newest.
type stream struct {
	all    *streams
	isGet  bool
	plain  bool          // the client takes no events, only the answer
	prime  bool          // the client takes an event without data first: it can resume before there is one with data
	linger time.Duration // how long its request goes on once the client has left
	number int64         // 0 if it cannot be resumed
	suffix string        // of the ids of its events

	// Guarded by the lock of all.
	messages [][]byte // of the newest events, those that are sent as long as they are kept
	newest   int64    // the number of the newest event
	sent     int64    // that of the newest one that was sent, or came while there was no reader
	bytes    int      // of the messages after that
	reader   *reader  // nil while no connection is there
	begun    bool     // a connection sends it as events
	voided   bool     // see void
	closed   bool
	status   int         // of the answer that finishes it, if nothing was sent before; 0 for 200
	cancel   func()      // of its request, while there is no answer
	orphan   *time.Timer // calls cancel
}

// reader is a connection that sends a stream.
type reader struct {
	*stream
	wake   chan struct{} // has a token when there is something new
	cursor int64         // the number of the newest event that it has taken
}

// newStream returns the reader of a stream that cannot be resumed.
func newStream() *reader { return newReader(&stream{all: &streams{held: new(atomic.Int64)}}, 0) }

// newReader returns a reader that continues after an event, in place of the one that is there.
func newReader(o *stream, after int64) *reader {
	o.wakeLocked()
	o.reader = &reader{stream: o, wake: make(chan struct{}, 1), cursor: after}
	return o.reader
}

func (o *stream) wakeLocked() {
	if o.reader != nil {
		sleep.Wake(o.reader.wake)
	}
}

// push adds a message. It reports false if the stream has ended, or the client takes none, or reads too slowly.
func (o *stream) push(message []byte) bool {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	if o.closed || o.plain || o.bytes > 0 && o.bytes+len(message) > maxUnsent {
		return false
	}
	o.addLocked(message)
	return true
}

// finish ends the stream, after a last message if there is one.
func (o *stream) finish(last []byte) {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	if o.closed {
		return
	}
	o.closed, o.cancel, o.orphan = true, nil, nil
	o.wakeLocked()
	if last != nil {
		o.addLocked(last)
	}
}

// void ends the stream of a request that is to be made again. It reports false if something of it was sent, or if the
// client has left, whose request goes on.
func (o *stream) void() bool {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	if o.begun || o.newest > 0 || o.reader == nil {
		return false
	}
	o.closed, o.voided, o.cancel, o.orphan = true, true, nil, nil
	o.wakeLocked()
	return true
}

func (o *stream) addLocked(message []byte) {
	o.messages, o.newest, o.bytes = append(o.messages, message), o.newest+1, o.bytes+len(message)
	o.wakeLocked()
	if o.reader == nil {
		o.sentLocked()
	}
}

// sentLocked notes that all events are sent, or that the client must come back for them.
func (o *stream) sentLocked() {
	for ; o.sent < o.newest; o.sent++ {
		o.all.keepLocked(o, len(o.messages[len(o.messages)-int(o.newest-o.sent)]))
	}
	o.bytes = 0
}

// unread is the number of messages that wait for the reader, the last one of them, and whether no more follow: another
// reader may have taken its place.
func (r *reader) unread() (n int, last []byte, closed bool) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	if r.reader != r {
		return 0, nil, true
	}
	if n = int(r.newest - r.cursor); n > 0 {
		last = r.messages[len(r.messages)-1]
	}
	return n, last, r.closed
}

// take returns what waits for the reader, which is then sent, and whether no more follows. There is nothing if another
// reader has taken its place, or some of it is forgotten.
func (r *reader) take() (messages [][]byte, closed bool) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	from := len(r.messages) - int(r.newest-r.cursor)
	if r.reader != r || from < 0 {
		return nil, true
	}
	messages = slices.Clone(r.messages[from:])
	r.cursor = r.newest
	r.sentLocked()
	return messages, r.closed
}

// begin notes that events are sent, and reports whether one without data is the first. It fails with errVoid.
func (r *reader) begin() (primes bool, err error) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	if r.voided {
		return false, errVoid
	}
	primes = r.prime && r.number > 0 && !r.begun
	r.begun = true
	return primes, nil
}

// errVoid says that the request of a stream is to be made again.
var errVoid = errors.New("the request is to be made again")

// send writes the stream as events until it ends, the client leaves or ctx ends. hold counts what is being written. It
// fails, with errVoid, only if nothing is written.
func (r *reader) send(ctx context.Context, w http.ResponseWriter, keepAlive time.Duration,
	hold func(int64) error) error {
	primes, err := r.begin()
	if err != nil {
		return err
	}
	header, out := w.Header(), http.NewResponseController(w)
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	quiet := time.NewTicker(keepAlive)
	defer quiet.Stop()
	if primes {
		_, _ = io.WriteString(w, "id: "+r.eventID(0)+"\ndata: \n\n") // Flush reports a failure
	}
	for {
		number := r.cursor
		messages, closed := r.take()
		for _, message := range messages {
			if hold(int64(len(message))) != nil {
				return nil
			}
			begin := "event: message\ndata: "
			if number++; r.number > 0 {
				begin = "id: " + r.eventID(number) + "\n" + begin
			}
			for _, part := range [][]byte{[]byte(begin), message, []byte("\n\n")} {
				if _, err := w.Write(part); err != nil {
					return nil
				}
			}
		}
		if out.Flush() != nil || closed || hold(0) != nil { // what is flushed needs no memory here
			return nil
		}
		select {
		case <-r.wake:
		case <-quiet.C:
			_, _ = w.Write([]byte(": keep-alive\n\n")) // Flush reports a failure
		case <-ctx.Done():
			return nil
		}
	}
}

// leave ends a connection of the stream. It reports false if another one has taken its place. What is still to come is
// kept if the client can resume the stream, for which a GET opens it again. Otherwise the stream is over.
func (r *reader) leave() bool {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	o := r.stream
	if o.reader != r {
		return false
	}
	o.reader = nil
	if o.cancel != nil {
		o.orphan = time.AfterFunc(o.linger, o.cancel)
	}
	if !o.begun { // the client has no id by which to resume it
		o.messages = nil
	} else {
		o.sentLocked()
	}
	o.closed = o.closed || !o.begun || o.isGet || o.number == 0
	o.forgetLocked()
	return true
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
