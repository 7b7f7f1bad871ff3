package events

import (
	"context"
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
)

// Filter selects events. Its zero value selects all.
type Filter struct {
	// Types are globs of types, such as lease.*; none selects every type. A type that is emitted on demand alone must be
	// selected by its name.
	Types []string
	// Since is the time of the oldest event.
	Since time.Time
	// Pool reports whether events of a pool, "" for those of none, are selected; nil selects all.
	Pool func(string) bool
}

// ParseTypes returns the globs in a list that is separated by commas. It fails with CodeInvalid for one that matches no
// type.
func ParseTypes(list string) ([]string, error) {
	var globs []string
	for glob := range strings.SplitSeq(list, ",") {
		if glob = strings.TrimSpace(glob); glob == "" {
			continue
		}
		if !slices.ContainsFunc(api.EventTypes(), func(t string) bool { matched, _ := path.Match(glob, t); return matched }) {
			return nil, api.Errorf(api.CodeInvalid, "no event type matches %q; the types are %s", glob,
				strings.Join(api.EventTypes(), ", "))
		}
		globs = append(globs, glob)
	}
	return globs, nil
}

// ParseSince returns the time that a text names: a time of RFC 3339, or how long before now; for "" the zero time. It
// fails with CodeInvalid.
func ParseSince(text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil && text != "" {
		return at, api.Errorf(api.CodeInvalid,
			"since is %q; it must be a duration such as 10m, or a time such as 2026-01-31T12:00:00Z", text)
	}
	return at, nil
}

func (f Filter) selects(e Entry) bool {
	if e.Time.Before(f.Since) || f.Pool != nil && !f.Pool(e.Pool) {
		return false
	}
	if e.Type == api.EventWorkerSampled {
		return f.wantsSamples()
	}
	return len(f.Types) == 0 || slices.ContainsFunc(f.Types,
		func(glob string) bool { matched, _ := path.Match(glob, e.Type); return matched })
}

// wantsSamples reports whether samples are selected, which are emitted on demand.
func (f Filter) wantsSamples() bool { return slices.Contains(f.Types, api.EventWorkerSampled) }

// Reader reads a Log at its own pace. It is for one goroutine.
type Reader struct {
	log    *Log
	filter Filter
	next   uint64
}

// maxBatch bounds how many events one Read scans, and BatchBytes their JSON, which a stalled reader keeps alive beyond
// the ring. Each event is far smaller.
const (
	maxBatch   = 256
	BatchBytes = 256 << 10
)

// FromNow returns a reader of the events from now on.
func (l *Log) FromNow(f Filter) *Reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &Reader{l, f, l.next}
}

// FromOldest returns a reader of all events that are held, and those from now on.
func (l *Log) FromOldest(f Filter) *Reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &Reader{l, f, l.first}
}

// After returns a reader of the events after the one with an id. It reports false if no event of this Log has the id:
// the reader then begins with the oldest event.
func (l *Log) After(id string, f Filter) (r *Reader, found bool) {
	r = l.FromOldest(f)
	number, ours := strings.CutPrefix(id, l.id+"-")
	seq, err := strconv.ParseUint(number, 10, 64)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ours || err != nil || seq >= l.next {
		return r, false
	}
	r.next = seq + 1
	return r, true
}

// position is the id of event n.
func (l *Log) position(n uint64) string { return l.id + "-" + strconv.FormatUint(n, 10) }

// Position is the id of the last event that the reader has passed, selected or not: After continues from there.
func (r *Reader) Position() string { return r.log.position(r.next - 1) }

// Read returns the next selected events, which may be none, and how many events of any kind the ring had dropped before
// the reader got to them. more reports whether further events are held already.
func (r *Reader) Read() (events []Entry, missed uint64, more bool) {
	l := r.log
	l.mu.Lock()
	if r.next < l.first {
		missed, r.next = l.first-r.next, l.first
	}
	var looked [maxBatch]Entry
	n := 0
	for size := 0; n < maxBatch && r.next < l.next; n++ {
		e := l.ring[r.next%uint64(len(l.ring))]
		if size += len(e.JSON); size > BatchBytes {
			break
		}
		looked[n] = e
		r.next++
	}
	more = r.next < l.next
	l.mu.Unlock()
	for _, e := range looked[:n] {
		if r.filter.selects(e) {
			events = append(events, e)
		}
	}
	return events, missed, more
}

// Wait waits for an event that Read has not passed. It returns false when ctx ends first.
func (r *Reader) Wait(ctx context.Context) bool {
	l := r.log
	if r.filter.wantsSamples() {
		defer l.limits[api.EventWorkerSampled].asked.begin()()
	}
	l.mu.Lock()
	if r.next < l.next {
		l.mu.Unlock()
		return true
	}
	further := l.changes.Next()
	l.mu.Unlock()
	select {
	case <-further:
		return true
	case <-ctx.Done():
		return false
	}
}

// MissedEvent is the JSON of an event of type api.EventMissed, for a reader at a position. Its id is not a position in
// the Log.
func MissedEvent(source, position string, data api.MissedEvent) []byte {
	content, err := json.Marshal(api.Event{
		SpecVersion: "1.0", ID: position + "-missed", Source: source, Type: api.EventMissed, Time: time.Now().UTC(),
		ContentType: "application/json",
		Data:        encode(data),
	})
	if err != nil {
		panic(err) // it is made of texts and numbers
	}
	return content
}
