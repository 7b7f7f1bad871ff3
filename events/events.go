// Package events owns what happened at an agent: a bounded ring of events, which each reader reads at its own pace.
//
// An emitter never waits for a reader: a reader has a position in the ring and no queue, and is told how many events it
// missed if the ring has moved past it.
package events

import (
	"encoding/json"
	"math"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

// Bounds of a Log.
const (
	// Size is how many events a Log holds, and Bytes how many bytes of them.
	Size  = 8192
	Bytes = 8 << 20
	// maxEvent bounds the data of one event; longer texts in it are cut to maxText.
	maxEvent = 16 << 10
	maxText  = 1 << 10
)

// Log is the ring of an agent's newest events. New makes it; a nil Log holds nothing and takes nothing. All methods are
// safe for concurrent use.
type Log struct {
	id      string
	limits  map[string]*limit
	mu      sync.Mutex
	ring    []Entry       // of event n at n % len
	first   uint64        // the oldest event that is held
	next    uint64        // the number of the next event
	bytes   int           // of all that are held
	changes sleep.Changes // further events
}

// Entry is an event in the ring. It is immutable.
type Entry struct {
	ID   string // of the api.Event, and of its place in the Log
	Type string
	Pool string // "" if the event is of no pool
	Time time.Time
	JSON []byte // an api.Event
}

// New returns an empty Log. id distinguishes it from every other Log, those of the same agent's earlier starts
// included.
func New(id string) *Log { return newLog(id, Size) }

func newLog(id string, size int) *Log {
	return &Log{id: id, limits: newLimits(), ring: make([]Entry, size), first: 1, next: 1}
}

// Wants reports whether an event of a type is to be emitted now. Types that may come in floods have a share of each
// second; what exceeds it is counted, and the next event of the type says how many there were. Call it once for each
// event, before its data is put together.
func (l *Log) Wants(eventType string) bool {
	if l == nil {
		return false
	}
	limit := l.limits[eventType]
	return limit == nil || limit.take(time.Now().Unix())
}

// Emit adds an event if Wants wants it.
func (l *Log) Emit(eventType, source string, at time.Time, data any) {
	if l.Wants(eventType) {
		l.Add(eventType, source, at, data)
	}
}

// Add adds an event that Wants wanted.
func (l *Log) Add(eventType, source string, at time.Time, data any) {
	event := api.Event{
		SpecVersion: "1.0", Source: source, Type: eventType, Time: at.UTC().Round(0), ContentType: "application/json",
		Data: encode(data),
	}
	if limit := l.limits[eventType]; limit != nil {
		event.Omitted = int32(min(limit.omitted.Swap(0), math.MaxInt32))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	event.ID = l.position(l.next)
	content, err := json.Marshal(event)
	if err != nil { // a time of a year beyond 9999
		return
	}
	l.dropLocked(len(content))
	l.ring[l.next%uint64(len(l.ring))] = Entry{
		ID: event.ID, Type: eventType, Pool: api.SourcePool(source), Time: event.Time, JSON: content,
	}
	l.bytes += len(content)
	l.next++
	l.changes.Announce()
}

// dropLocked makes room for one more event of this many bytes.
func (l *Log) dropLocked(size int) {
	for l.first < l.next && (l.next-l.first >= uint64(len(l.ring)) || l.bytes+size > Bytes) {
		oldest := &l.ring[l.first%uint64(len(l.ring))]
		l.bytes -= len(oldest.JSON)
		*oldest = Entry{}
		l.first++
	}
}

// Omitted counts, by type, the events that Wants did not want.
func (l *Log) Omitted() map[string]int64 {
	counts := map[string]int64{}
	if l == nil {
		return counts
	}
	for eventType, limit := range l.limits {
		counts[eventType] = limit.total.Load()
	}
	return counts
}

// encode is the JSON of data, with its texts cut if it is too long.
func encode(data any) json.RawMessage {
	content, err := json.Marshal(data)
	if err != nil {
		content, _ = json.Marshal(map[string]string{"error": "the data cannot be encoded: " + err.Error()})
	}
	if len(content) <= maxEvent {
		return content
	}
	var parsed any
	if json.Unmarshal(content, &parsed) == nil {
		if content, err = json.Marshal(cut(parsed)); err == nil && len(content) <= maxEvent {
			return content
		}
	}
	return json.RawMessage(`{"error":"the data was too long"}`)
}

// cut shortens the texts in a JSON value.
func cut(value any) any {
	switch value := value.(type) {
	case string:
		if len(value) > maxText {
			return value[:maxText] + "…"
		}
	case map[string]any:
		for key, one := range value {
			value[key] = cut(one)
		}
	case []any:
		for i, one := range value {
			value[i] = cut(one)
		}
	}
	return value
}
