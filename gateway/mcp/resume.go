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
)

const (
	// maxKept bounds what a session keeps for a client that loses a stream, in bytes, except for one larger message, and
	// maxKeptAll what all sessions do. keptFor is how long.
	maxKept    = 1 << 20
	maxKeptAll = 64 << 20
	keptFor    = 5 * time.Minute
	// maxNamed bounds the request's id in an event's, in bytes.
	maxNamed = 64
	// maxEvent bounds the number of an event that a client says, so that others can follow it.
	maxEvent = 1 << 53
	// ownerDigits are those of an event's id that say whose session's it is. Others follow, which are new whenever the
	// session comes into memory.
	ownerDigits = 8
)

var errUnknownEvent = &failure{http.StatusBadRequest, codeRequest,
	"Last-Event-ID names no stream of this session that is still known", nil}

// streams are those of a session. What they have sent is kept for a while, so that the client can resume them.
type streams struct {
	held *atomic.Int64 // bytes that all sessions keep
	tag  string        // of the ids of events; see ownerDigits

	mu       sync.Mutex        // guards the streams, too
	byNumber map[int64]*stream // that have not ended, or of which an event is kept; nil if nothing is kept
	newest   int64             // number
	kept     []keptEvent       // oldest first
	bytes    int
}

// keptEvent says that a stream keeps an event, its oldest one that no earlier keptEvent stands for.
type keptEvent struct {
	stream *stream
	at     time.Time
}

// keepLocked keeps the next event of a stream.
func (all *streams) keepLocked(o *stream, size int) {
	all.kept, all.bytes = append(all.kept, keptEvent{o, time.Now()}), all.bytes+size
	for held := all.held.Add(int64(size)); len(all.kept) > 0 && (all.byNumber == nil || held > maxKeptAll ||
		all.bytes > maxKept && len(all.kept) > 1); {
		held = all.dropLocked()
	}
}

// dropLocked drops the oldest event, and returns how many bytes all sessions keep then.
func (all *streams) dropLocked() (held int64) {
	o := all.kept[0].stream
	size := len(o.messages[0])
	all.kept[0], o.messages[0] = keptEvent{}, nil // else they stay in memory
	all.kept, o.messages, all.bytes = all.kept[1:], o.messages[1:], all.bytes-size
	o.forgetLocked()
	return all.held.Add(-int64(size))
}

// forgetLocked forgets a stream if nobody is there for it, nothing more comes and nothing is kept.
func (o *stream) forgetLocked() {
	if o.reader == nil && o.closed && len(o.messages) == 0 {
		delete(o.all.byNumber, o.number)
	}
}

// end forgets all events of a session that has ended.
func (all *streams) end() {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.byNumber = nil
	for len(all.kept) > 0 {
		all.dropLocked()
	}
}

func (all *streams) expire(now time.Time) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for len(all.kept) > 0 && now.Sub(all.kept[0].at) > keptFor {
		all.dropLocked()
	}
}

// name gives the session its id.
func (s *session) name(id string) {
	owner := sha256.Sum256([]byte(id))
	s.id, s.streams.byNumber = id, map[int64]*stream{}
	s.streams.tag = hex.EncodeToString(owner[:])[:ownerDigits] + rand.Text()[:ownerDigits]
}

// stream returns the reader of a new stream for the client: of a request with this id, or for nil of a GET. It can be
// resumed if the session has an id; the ids of its events have the session, the stream, the event and, of a request,
// the request's id. h is the header of the request or the GET, and cancel ends the request.
func (s *session) stream(request json.RawMessage, h http.Header, cancel func()) *reader {
	o := &stream{all: &s.streams, isGet: request == nil, plain: !accepts(h, typeSSE),
		prime: h.Get(headerVersion) >= resumableVersion, cancel: cancel}
	if !s.modern {
		o.linger = orphanTime
	}
	if !o.isGet {
		o.suffix = "."
		if len(request) <= maxNamed {
			o.suffix += base64.RawURLEncoding.EncodeToString(request)
		}
	}
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	if o.all.byNumber != nil {
		o.all.newest++
		o.number = o.all.newest
		o.all.byNumber[o.number] = o
	}
	return newReader(o, 0)
}

// eventID is the id of an event.
func (o *stream) eventID(number int64) string {
	return o.all.tag + "." + strconv.FormatInt(o.number, 10) + "." + strconv.FormatInt(number, 10) + o.suffix
}

// OfRequest reports whether an event with this id is of a request's stream, which ends with the answer.
func OfRequest(id string) bool { return strings.Count(id, ".") == 3 }

// resume returns a reader that continues after an event. That of a GET is of a new stream if its own was an earlier
// agent's. A request's stream that has ended with an earlier agent ends with an error: the client must not take the
// session for lost.
func (s *session) resume(id string, h http.Header) (*reader, error) {
	parts, tag := strings.Split(id, "."), s.streams.tag
	if len(parts) < 3 || len(parts) > 4 || len(parts[0]) != len(tag) || parts[0][:ownerDigits] != tag[:ownerDigits] {
		return nil, errUnknownEvent
	}
	number, err := strconv.ParseInt(parts[1], 10, 64)
	after, failed := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || failed != nil || number <= 0 || after < 0 {
		return nil, errUnknownEvent
	}
	s.mu.Lock() // until it is open: another connection may resume it and leave
	defer s.mu.Unlock()
	out := s.streams.after(number, after, id)
	if out == nil && len(parts) == 3 {
		out = s.stream(nil, h, nil)
	}
	if out != nil {
		s.openLocked(out.stream)
		return out, nil
	}
	request, err := base64.RawURLEncoding.DecodeString(parts[3])
	if err != nil || parts[0] == tag || len(request) == 0 || !json.Valid(request) || !isID(request) {
		return nil, errUnknownEvent
	}
	lost := api.Errorf(api.CodeWorkerCrashed, "the request has ended with its agent, and its answer is lost")
	lost.Started = true
	out = newStream()
	out.finish(response(request, nil, lost))
	return out, nil
}

// after returns a reader of a stream that continues after the event with this id; nil if it cannot. That of a GET
// continues with what is kept, under the same number even if that is nothing: the client may lose this connection, too,
// before it has another id.
func (all *streams) after(number, event int64, id string) *reader {
	all.mu.Lock()
	defer all.mu.Unlock()
	o := all.byNumber[number]
	if o == nil && number <= all.newest && event < maxEvent && all.byNumber != nil { // a forgotten one, perhaps of a GET
		o = &stream{all: all, isGet: true, number: number, newest: event, sent: event}
	}
	if o == nil || o.eventID(event) != id {
		return nil
	}
	all.byNumber[number] = o
	forgotten := o.newest - int64(len(o.messages)) // the newest event that is not kept
	if o.isGet {
		event, o.closed = min(max(event, forgotten), o.newest), false
	} else if event < forgotten || event > o.newest || event == o.newest && o.closed {
		return nil
	}
	if o.orphan != nil {
		o.orphan.Stop()
	}
	return newReader(o, event)
}

// left ends a connection of one of the session's streams.
func (s *session) left(r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.leave() {
		s.opened = slices.DeleteFunc(s.opened, func(o *stream) bool { return o == r.stream })
	}
}
