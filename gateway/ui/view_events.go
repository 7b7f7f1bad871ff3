package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/lifecycle"
)

const (
	// longestStream is after how long a stream ends. Browsers connect again.
	longestStream = time.Hour
	// clockSkew is how far the clocks of hosts may differ so that a page misses no event between its moment and the start
	// of its stream.
	clockSkew = 5 * time.Second
	// keepAliveEvery is how often a stream sends a comment, so that nobody on the way considers it dead.
	keepAliveEvery = 15 * time.Second
	// shownEvents bounds the events of the page before those that come live.
	shownEvents = 200
	// readEvents bounds those that are read of each agent for the page, and readOfSome those for a visitor who may use
	// some pools only: an agent may send what that one does not see.
	readEvents, readOfSome = shownEvents + 1, 10 * shownEvents
	// waitingEvents bounds the events that wait for a slow browser; further ones are dropped, and the page says so.
	waitingEvents = 256
)

// eventRow is an event as the page and the stream show it.
type eventRow struct {
	ID      string    `json:"id"`
	Time    time.Time `json:"time"`
	Type    string    `json:"type"`
	Subject string    `json:"subject"`
	Path    string    `json:"path,omitempty"`
	Text    string    `json:"text"`
	Tone    string    `json:"tone"`
}

type eventsView struct {
	Pool, Types, Since string
	Rows               []eventRow
	Known              []string
	Pools              []string
	Dropped            bool // earlier ones are not shown
}

func newEventRow(e api.Event) eventRow {
	row := eventRow{ID: e.ID, Time: e.Time.UTC(), Type: e.Type, Subject: events.Subject(e.Source), Text: events.Summary(e),
		Tone: toneOfEvent(e)}
	if pool := api.SourcePool(e.Source); pool != "" {
		row.Path = poolPath(pool)
		if worker := workerPath(row.Subject); worker != "" {
			row.Path = worker
		}
	}
	return row
}

func toneOfEvent(e api.Event) string {
	switch e.Type {
	case api.EventProcessStartFailed, api.EventHostLost, api.EventCallFailed:
		return "bad"
	case api.EventLimitExceeded, api.EventLeaseExpired, api.EventMissed, api.EventWorkerProbed, api.EventPoolHeld:
		return "warn"
	case api.EventWorkerTransitioned:
		var step struct {
			To lifecycle.State `json:"to"`
		}
		_ = json.Unmarshal(e.Data, &step) // without one it has no tone
		return toneOfState(step.To)
	}
	return "idle"
}

// selection are the events that a request asks for.
func (v *visit) selection() (o tempool.EventOptions, err error) {
	query := v.r.URL.Query()
	o.Pool = query.Get("pool")
	if err := v.mayUse(o.Pool); err != nil {
		return o, err
	}
	if types := strings.ReplaceAll(query.Get("types"), " ", ""); types != "" {
		if _, err := events.ParseTypes(types); err != nil {
			return o, err
		}
		o.Types = strings.Split(types, ",")
	}
	return o, nil
}

// may reports whether the visitor may read an event.
func (v *visit) may(e api.Event) bool {
	pool := api.SourcePool(e.Source)
	return v.principal.EveryPool() || pool != "" && v.principal.MayUse(pool)
}

func (v *visit) eventsPage() error {
	o, err := v.selection()
	if err != nil {
		return err
	}
	view := eventsView{Pool: o.Pool, Types: strings.Join(o.Types, ","), Since: cmp.Or(v.r.URL.Query().Get("since"), "10m"),
		Known: api.EventTypes()}
	ago, err := time.ParseDuration(view.Since)
	if err != nil || ago <= 0 {
		return api.Errorf(api.CodeInvalid, "since is %q; give a duration such as 10m", view.Since)
	}
	o.Since, o.Newest = time.Now().Add(-ago), readEvents
	if !v.principal.EveryPool() {
		o.Newest = readOfSome
	}
	ctx, cancel := context.WithTimeout(v.remote(v.ctx()), v.requestTimeout())
	defer cancel()
	p := page{Title: "Events", Nav: "events"}
	for event, err := range v.d.config.Fleet.Events(ctx, o) {
		if err != nil {
			p.Trouble = append(p.Trouble, eventsTrouble(err))
		} else if v.may(event) {
			view.Rows = append(view.Rows, newEventRow(event))
		}
	}
	surplus := max(0, len(view.Rows)-shownEvents)
	view.Dropped, view.Rows = surplus > 0, view.Rows[surplus:]
	slices.Reverse(view.Rows)
	view.Pools = v.poolNames(ctx).value // without them, the page offers none
	p.Data = view
	return v.render(http.StatusOK, "events", p)
}

func eventsTrouble(err error) string { return unreadable("Events are missing", "That gateway", err) }

// live is the stream of events that keeps pages up to date, as Server-Sent Events.
func (v *visit) live() error {
	o, err := v.selection()
	if err != nil {
		return err
	}
	if v.r.Method == http.MethodHead { // it writes nothing, so it would not notice that the client has gone
		v.w.Header().Set("Content-Type", "text/event-stream")
		return nil
	}
	worker, own := v.r.URL.Query().Get("worker"), stream{owner: ownerOf(v.principal)}
	if worker == "" && slices.Contains(o.Types, api.EventLeaseGranted) {
		own.leases = o.Pool
	}
	if !v.d.streams.enter(own) {
		v.w.Header().Set("Retry-After", streamRetrySeconds)
		return api.Errorf(api.CodeUnavailable,
			"too many pages are following events; close some, or wait: until then, pages reload every ten seconds")
	}
	defer v.d.streams.leave(own)
	o.Follow, o.Hosts = true, v.listHosts
	if since, err := time.Parse(time.RFC3339Nano, v.r.URL.Query().Get("since")); err == nil { // else from now on
		o.Since = time.Now().Add(-clockSkew - min(max(0, time.Since(since)), longestStream))
	}
	ctx, cancel := context.WithTimeout(v.remote(v.ctx()), longestStream)
	defer cancel()
	control := http.NewResponseController(v.w)
	_ = control.SetReadDeadline(time.Time{}) // the stream outlasts the time to read a request
	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.Header().Set("X-Accel-Buffering", "no") // nginx
	send := func(data []byte) bool {
		_, err := v.w.Write(data)
		return err == nil && control.Flush() == nil
	}
	waiting := make(chan []byte, waitingEvents)
	go func() { // until ctx ends; this function cancels it
		defer close(waiting)
		for event, err := range v.d.config.Fleet.Events(ctx, o) {
			var data []byte
			switch {
			case err != nil:
				data = frame("trouble", eventsTrouble(err))
			case !v.may(event), worker != "" && !strings.HasSuffix(event.Source, "/workers/"+worker):
				continue
			default:
				v.d.memos.workers.forget(event.Source)
				data = frame("", newEventRow(event))
			}
			select {
			case waiting <- data:
			default: // the browser is slow: what a page shows comes with its next refresh
			}
		}
	}()
	keepAlive := time.NewTicker(keepAliveEvery)
	defer keepAlive.Stop()
	for open := send([]byte("retry: 3000\n\n")); open; {
		select {
		case <-ctx.Done():
			open = false
		case data, more := <-waiting:
			open = more && send(data)
		case <-keepAlive.C:
			open = send([]byte(": still here\n\n"))
		}
	}
	cancel()
	for range waiting { // until the goroutine has ended
	}
	return nil
}

// listHosts are the hosts that all viewers share: a stream looks for new agents every few seconds.
func (v *visit) listHosts(ctx context.Context) ([]tempool.Host, error) {
	found := v.hosts(ctx)
	if found.at.IsZero() {
		return nil, found.err
	}
	hosts := make([]tempool.Host, len(found.value))
	for i := range hosts {
		hosts[i] = found.value[i].Host
	}
	return hosts, nil
}

// frame is one event of the stream; "" is its default type.
func frame(kind string, value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		return nil // texts and times always encode
	}
	head := ""
	if kind != "" {
		head = "event: " + kind + "\n"
	}
	return append(append([]byte(head+"data: "), data...), "\n\n"...)
}

const (
	// maxStreams bounds the streams of events: each follows every agent. maxStreamsEach bounds those of one principal.
	maxStreams, maxStreamsEach = 64, 8
	// streamRetrySeconds is after how long a browser whose stream was refused asks again; until then its pages reload.
	streamRetrySeconds = "30"
)

// streams are the streams of events that are open. The zero value is ready.
type streams struct {
	mu   sync.Mutex
	open []stream
}

// stream is one of a principal. leases is the pool about whose leases it is; "" for none.
type stream struct{ owner, leases string }

// enter reports whether its owner may open one more stream. If so, it must leave at its end.
func (s *streams) enter(one stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := 0
	for _, other := range s.open {
		if other.owner == one.owner {
			own++
		}
	}
	if len(s.open) >= maxStreams || own >= maxStreamsEach {
		return false
	}
	s.open = append(s.open, one)
	return true
}

func (s *streams) leave(one stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.open, one)
	s.open = slices.Delete(s.open, at, at+1)
}

// follows reports whether any stream is about the leases of a pool.
func (s *streams) follows(pool string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.open, func(one stream) bool { return one.leases == pool })
}
