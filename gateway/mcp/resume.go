package mcp

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

const (
	// maxKept bounds what a session keeps for a client that loses a stream, in bytes, except for one larger message, and
	// maxKeptAll what all sessions do. keptFor is how long.
	maxKept    = 1 << 20
	maxKeptAll = 64 << 20
	keptFor    = 5 * time.Minute
	// maxNamed bounds the request's id in an event's, in bytes.
	maxNamed = 64
	// ownerDigits are those of an event's id that say whose session's it is. Others follow, which are new whenever the
	// session comes into memory.
	ownerDigits = 8
	// anyConnection is that of a stream which is the newest.
	anyConnection = -1
)

var errUnknownEvent = &failure{http.StatusBadRequest, codeRequest,
	"Last-Event-ID names no stream of this session that is still known", nil}

// event is a message of a stream. Its number, from 1, is 0 before it is sent or kept.
type event struct {
	number  int64
	message []byte
	last    bool // it answers the request
}

// kept are the newest events of a session's streams.
type kept struct {
	all    *atomic.Int64 // bytes that all sessions keep
	mu     sync.Mutex
	events []keptEvent
	bytes  int
	closed bool
}

type keptEvent struct {
	event
	stream int64
	at     time.Time
}

func (k *kept) add(stream int64, e event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	k.events, k.bytes = append(k.events, keptEvent{e, stream, time.Now()}), k.bytes+len(e.message)
	for all := k.all.Add(int64(len(e.message))); k.bytes > maxKept && len(k.events) > 1 ||
		all > maxKeptAll && len(k.events) > 0; {
		all = k.dropLocked()
	}
}

// dropLocked drops the oldest event, and returns how many bytes all sessions keep then.
func (k *kept) dropLocked() (all int64) {
	size := len(k.events[0].message)
	k.bytes -= size
	k.events[0] = keptEvent{} // else the message stays in memory
	k.events = k.events[1:]
	return k.all.Add(-int64(size))
}

// end forgets all events of a session that has ended.
func (k *kept) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	for len(k.events) > 0 {
		k.dropLocked()
	}
}

// after returns the events of a stream after one, as far as they are kept.
func (k *kept) after(stream, number int64) (events []event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.events {
		if e.stream == stream && e.number > number {
			events = append(events, e.event)
		}
	}
	return events
}

func (k *kept) expire(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.events) > 0 && now.Sub(k.events[0].at) > keptFor {
		k.dropLocked()
	}
}

// name gives the session its id.
func (s *session) name(id string) {
	owner := sha256.Sum256([]byte(id))
	s.id, s.streams = id, map[int64]*stream{}
	s.tag = hex.EncodeToString(owner[:])[:ownerDigits] + rand.Text()[:ownerDigits]
}

// stream is a new stream for the client: of a request with this id, or for nil of a GET. It can be resumed if the
// session has an id; those of its events have the session, the stream, the event and, of a request, the request's id.
func (s *session) stream(request json.RawMessage) *stream {
	o := newStream()
	if o.isGet = request == nil; s.id == "" {
		return o
	}
	o.kept, o.number, o.tag = &s.kept, s.numbers.Add(1), s.tag
	if !o.isGet {
		o.suffix = "."
		if len(request) <= maxNamed {
			o.suffix += base64.RawURLEncoding.EncodeToString(request)
		}
	}
	return o
}

// eventID is the id of an event.
func (o *stream) eventID(number int64) string {
	return o.tag + "." + strconv.FormatInt(o.number, 10) + "." + strconv.FormatInt(number, 10) + o.suffix
}

// resume returns the stream of an event, which continues after it. A request's stream that has ended with an earlier
// agent ends with an error: the client must not take the session for lost.
func (s *session) resume(id string) (*stream, error) {
	parts := strings.Split(id, ".")
	if len(parts) < 3 || len(parts) > 4 || len(parts[0]) != len(s.tag) || parts[0][:ownerDigits] != s.tag[:ownerDigits] {
		return nil, errUnknownEvent
	}
	number, err := strconv.ParseInt(parts[1], 10, 64)
	after, failed := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || failed != nil || number <= 0 || after < 0 {
		return nil, errUnknownEvent
	}
	here := parts[0] == s.tag
	if len(parts) == 3 {
		out := s.stream(nil)
		if here {
			s.mu.Lock()
			if s.get != nil && s.get.number == number { // its connection is broken, or is about to be
				s.get.leave(anyConnection)
			}
			s.mu.Unlock()
			out.number = number
			out.replay(s.kept.after(number, after), after)
		}
		s.open(out, true)
		return out, nil
	}
	request, err := base64.RawURLEncoding.DecodeString(parts[3])
	if err != nil {
		return nil, errUnknownEvent
	}
	if !here {
		if len(request) == 0 || !json.Valid(request) || !isID(request) {
			return nil, errUnknownEvent
		}
		lost := api.Errorf(api.CodeWorkerCrashed, "the request has ended with its agent, and its answer is lost")
		lost.Started = true
		out := newStream()
		out.finish(response(request, nil, lost))
		return out, nil
	}
	s.mu.Lock()
	out := s.streams[number]
	s.mu.Unlock()
	events := s.kept.after(number, after)
	if out == nil { // it has ended, and is whole only if the answer is kept, too
		if n := len(events); n == 0 || !events[n-1].last || events[n-1].number != after+int64(n) {
			return nil, errUnknownEvent
		}
		out = s.stream(request)
		out.number, out.closed = number, true
		out.replay(events, after)
		return out, nil
	}
	if !out.reconnect(after) {
		return nil, errUnknownEvent
	}
	if s.lone() {
		s.open(out, false)
	}
	return out, nil
}

// replay has a new stream begin with events that were sent before.
func (o *stream) replay(events []event, sent int64) {
	o.unsent, o.sent = events, sent
	if len(events) > 0 {
		o.sent = events[len(events)-1].number
	}
	sleep.Wake(o.wake)
}

// reconnect has the stream continue at another connection, after an event. It reports false if it cannot.
func (o *stream) reconnect(after int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	events := o.kept.after(o.number, after)
	if int64(len(events)) != o.sent-after {
		return false
	}
	o.connection++
	o.away = false
	if o.orphan != nil {
		o.orphan.Stop()
	}
	o.unsent = append(events, slices.DeleteFunc(o.unsent, func(e event) bool { return e.number > 0 })...)
	sleep.Wake(o.wake)
	return true
}

// leave ends a connection of the stream; ours is false if another one has taken its place. What is still to come is
// kept if it can be resumed, which that of a GET is with another stream. Otherwise the stream is over.
func (o *stream) leave(connection int64) (ours, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if connection != anyConnection && o.connection != connection {
		return false, false
	}
	if !o.closed && o.cancel != nil {
		o.orphan = time.AfterFunc(orphanTime, o.cancel)
	}
	if o.kept != nil && o.connection > 0 {
		for i := range o.unsent {
			o.numberLocked(&o.unsent[i])
		}
		o.unsent, o.bytes, o.away = nil, 0, true
	}
	o.closed = o.closed || !o.away || o.isGet
	sleep.Wake(o.wake)
	return true, o.closed
}

// numberLocked numbers an event that is new, and keeps it.
func (o *stream) numberLocked(e *event) {
	if e.number == 0 {
		o.sent++
		e.number = o.sent
		o.kept.add(o.number, *e)
	}
}

// over reports whether nobody is there for the stream and nothing more comes, so that what is kept is all.
func (o *stream) over() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.away && o.closed
}

// left ends a connection of one of the session's streams.
func (s *session) left(o *stream, connection int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ours, over := o.leave(connection)
	if !ours {
		return
	}
	s.posts = slices.DeleteFunc(s.posts, func(p *stream) bool { return p == o })
	if s.get == o {
		s.get = nil
	}
	if over && s.streams[o.number] == o {
		delete(s.streams, o.number)
	}
}
