package gateway

import (
	"context"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/internal/sleep"
)

// keepAliveEvery is how often a stream of events without any sends a comment, so that nobody on the way considers it
// dead.
const keepAliveEvery = 15 * time.Second

// lasts reports whether a request that is no call asks for a stream without an end.
func lasts(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == "subscriptions/listen"
}

// whileAllowed ends a stream whose client signs out, or whose token is withdrawn or gets other rights. Other clients
// connect again.
func (g *Gateway) whileAllowed(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, began := connectionOf(r), principalOf(r)
		if !lasts(r) || c.peer != nil || c.caller != nil { // the caller's gateway ends it
			handle(w, r)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		go func() {
			for range sleep.Ticks(ctx.Done(), reloadInterval) {
				if !reflect.DeepEqual(g.auth.client(c, r), began) {
					cancel()
				}
			}
		}()
		handle(w, r.WithContext(ctx))
	}
}

// getEvents is GET /v1/events: the agent's events as Server-Sent Events, those of the pools that the client may use.
func (g *Gateway) getEvents(w http.ResponseWriter, r *http.Request) error {
	reader, first, follow, err := g.eventReader(r)
	if err != nil {
		return err
	}
	stream := http.NewResponseController(w)
	_ = stream.SetReadDeadline(time.Time{}) // the stream outlasts the time to read a request
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(g.life, cancel)()
	s := eventStream{gateway: g, w: w, reader: reader}
	s.place()
	if first != nil {
		s.missed(*first)
	}
	for {
		if s.send() {
			continue
		}
		if stream.Flush() != nil || !follow || !s.wait(ctx) {
			return nil
		}
	}
}

// eventReader returns a reader at the place that a request asks for, what to send first, and whether it waits for
// further events.
func (g *Gateway) eventReader(r *http.Request) (reader *events.Reader, first *api.MissedEvent, follow bool, err error) {
	query := r.URL.Query()
	filter, err := eventFilter(r)
	if err != nil {
		return nil, nil, false, err
	}
	if follow, err = isSet(query, "follow", true); err != nil {
		return nil, nil, false, err
	}
	switch id := r.Header.Get("Last-Event-ID"); {
	case id != "":
		var found bool
		if reader, found = g.config.Events.After(id, filter); !found {
			first = &api.MissedEvent{Reason: "this agent has no event " + strconv.Quote(id[:min(len(id), 100)]) +
				": it has restarted since, or the id is from another agent"}
		}
	case follow && query.Get("since") == "":
		reader = g.config.Events.FromNow(filter)
	default:
		reader = g.config.Events.FromOldest(filter)
	}
	return reader, first, follow, nil
}

// eventFilter selects the events that a request asks for and its client may read. Events of no pool are for clients
// that may use every pool.
func eventFilter(r *http.Request) (f events.Filter, err error) {
	principal, query := principalOf(r), r.URL.Query()
	asked := query.Get("pool")
	if asked != "" && !principal.MayUse(asked) {
		return f, api.Errorf(api.CodeForbidden, "%s may not use pool %s", principal.Name, asked)
	}
	f.Pool = func(pool string) bool {
		if asked != "" {
			return pool == asked
		}
		return principal.EveryPool() || pool != "" && principal.MayUse(pool)
	}
	if f.Types, err = events.ParseTypes(query.Get("type")); err != nil {
		return f, err
	}
	f.Since, err = events.ParseSince(query.Get("since"), time.Now())
	return f, err
}

// eventStream is an answer of events. A client that does not read it is disconnected by the deadline of writes; it
// holds nothing but a place in the ring.
type eventStream struct {
	gateway *Gateway
	w       http.ResponseWriter
	reader  *events.Reader
	due     time.Time // when it sends its place, if it sends no event before
}

// send sends the next events, and reports whether there are more. Write errors end the stream at its next flush.
func (s *eventStream) send() (more bool) {
	batch, missed, more := s.reader.Read()
	if missed > 0 {
		s.gateway.eventsMissed.Add(int64(missed))
		s.missed(api.MissedEvent{Count: missed,
			Reason: "the agent holds only its newest events, and dropped these before they were read"})
	}
	if len(batch) > 0 {
		s.due = time.Now().Add(keepAliveEvery)
	}
	for _, e := range batch {
		if _, err := s.w.Write(frame(e)); err != nil {
			return false
		}
	}
	return more
}

func frame(e events.Entry) []byte {
	b := make([]byte, 0, len(e.JSON)+64)
	b = append(append(append(b, "id: "...), e.ID...), '\n')
	return append(append(append(b, "data: "...), e.JSON...), "\n\n"...)
}

// missed sends an event of type api.EventMissed. It has no id of its own: a client that reconnects continues after the
// last event it got.
func (s *eventStream) missed(data api.MissedEvent) {
	event := events.MissedEvent(api.HostSource(s.gateway.config.HostID), s.reader.Position(), data)
	_, _ = s.w.Write(append(append([]byte("data: "), event...), "\n\n"...))
}

// wait waits for an event, and reports false once the client has gone or the gateway closes.
func (s *eventStream) wait(ctx context.Context) bool {
	for ctx.Err() == nil {
		quiet, cancel := context.WithDeadline(ctx, s.due)
		ready := quiet.Err() == nil && s.reader.Wait(quiet)
		cancel()
		if ready {
			return true
		}
		s.place()
		if http.NewResponseController(s.w).Flush() != nil {
			return false
		}
	}
	return false
}

// place sends the client its place in the ring, from which it continues if it reconnects: it may be past the last event
// that was selected.
func (s *eventStream) place() {
	_, _ = s.w.Write([]byte("id: " + s.reader.Position() + "\n\n"))
	s.due = time.Now().Add(keepAliveEvery)
}
