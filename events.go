package tempool

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/redact"
	"github.com/tempool/tempool/internal/transport"
)

// EventOptions select events. The zero value selects all that agents hold.
type EventOptions struct {
	Pool   string    // only events of this pool
	Types  []string  // only these types: globs such as lease.*
	Since  time.Time // only events since then; with Follow the default is now
	Newest int       // at most this many, the newest, of those that each agent holds; 0 for all
	// Follow continues with new events, including those of agents that start later.
	Follow bool
	// Hosts lists the hosts whose agents are read, every few seconds with Follow; nil asks Temporal.
	Hosts func(context.Context) ([]Host, error)
}

// Events yields the events that the agents of the namespace hold, in the order of their time, and with Follow those
// from now on, as they arrive. With Options.Gateways it reads these agents alone. A coded error is about one agent, and
// the iteration continues: with Follow the agent is asked again. The last error of an iteration without Follow,
// CodeInvalid, and CodeForbidden or CodeUnauthorized of every agent, end it.
func (c *Client) Events(ctx context.Context, o EventOptions) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		m := &eventMerge{ctx: ctx, yield: yield, client: c, options: o, began: time.Now(), arrived: make(chan func() bool),
			lastIDs: map[string]string{}, refused: map[string]bool{}}
		defer m.reading.Wait()
		defer cancel()
		if fromNow := o.Follow && o.Since.IsZero(); !fromNow && !m.held() || !o.Follow {
			return
		}
		m.reading.Go(func() { m.follower().run(ctx) })
		for {
			select {
			case <-ctx.Done():
				return
			case use := <-m.arrived:
				if !use() {
					return
				}
			}
		}
	}
}

// eventMerge reads the events of several agents. Goroutines read their streams; what these send, and what else they
// learn, is used on the goroutine of the iteration.
type eventMerge struct {
	ctx     context.Context // of the iteration
	yield   func(api.Event, error) bool
	client  *Client
	options EventOptions
	began   time.Time
	arrived chan func() bool // what to do on the goroutine of the iteration; it reports whether that continues
	reading sync.WaitGroup
	lastIDs map[string]string // of the held events that were read, by agent
	agents  []string          // their endpoints
	refused map[string]bool   // by the agents with these endpoints, the newest request
}

// fail yields the error of a request to an agent, or for the agents, and reports whether the iteration continues: not
// if all further requests will be refused.
func (m *eventMerge) fail(endpoint string, err error) bool {
	code := api.CodeOf(err)
	m.refused[endpoint] = code == api.CodeForbidden || code == api.CodeUnauthorized
	return m.yield(api.Event{}, err) && code != api.CodeInvalid && !(m.refused[endpoint] && m.allRefuse())
}

// allRefuse reports whether no agent is left that does not refuse.
func (m *eventMerge) allRefuse() bool {
	return !slices.ContainsFunc(m.agents, func(endpoint string) bool { return !m.refused[endpoint] })
}

// held yields the events that the agents hold, and reports whether the iteration continues.
func (m *eventMerge) held() bool {
	endpoints, err := m.client.eventEndpoints(m.ctx, m.options.Hosts)
	if err != nil && !m.fail("", err) {
		return false
	}
	m.agents = endpoints
	var mu sync.Mutex
	all, failures := readAll(endpoints, func(endpoint string) (held []api.Event, err error) {
		lastID, err := m.read(m.ctx, endpoint, streamStart{}, nil, func(e api.Event) error {
			held = append(held, e)
			return nil
		})
		if n := m.options.Newest; n > 0 {
			held = held[max(0, len(held)-n):]
		}
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			m.lastIDs[endpoint] = lastID
		}
		return held, err
	})
	slices.SortStableFunc(all, func(a, b api.Event) int { return a.Time.Compare(b.Time) })
	for _, failure := range failures {
		if !m.fail(failure.endpoint, failure.err) {
			return false
		}
	}
	for _, event := range all {
		if !m.yield(event, nil) {
			return false
		}
	}
	return true
}

// follower reads the streams of all agents, those that start meanwhile included.
func (m *eventMerge) follower() follower {
	return follower{
		endpoints: func(ctx context.Context) ([]string, error) {
			endpoints, err := m.client.eventEndpoints(ctx, m.options.Hosts)
			if len(endpoints) > 0 {
				_ = m.arrive(ctx, func() bool {
					m.agents = endpoints
					return !m.allRefuse()
				}) // fails only at the end
			}
			// those whose held events were read continue after them
			return slices.Concat(endpoints, slices.Collect(maps.Keys(m.lastIDs))), err
		},
		begin: func(endpoint string, late bool) streamReader {
			lastID, held := m.lastIDs[endpoint]
			at := streamStart{lastID: lastID}
			if late && !held { // by the agent's clock
				at.since = time.Since(m.began).String()
			}
			return func(ctx context.Context, answered func()) error {
				opened := func() {
					_ = m.arrive(ctx, func() bool { m.refused[endpoint] = false; return true })
				}
				last, err := m.read(ctx, endpoint, at, opened, func(e api.Event) error {
					answered()
					return m.arrive(ctx, func() bool { return m.yield(e, nil) })
				})
				at.lastID = cmp.Or(last, at.lastID)
				return err
			}
		},
		failed: func(endpoint string, err error) {
			_ = m.arrive(m.ctx, func() bool { return m.fail(endpoint, err) })
		},
	}
}

// streamStart is where reading a stream begins: after an event, else at a time, else now.
type streamStart struct{ lastID, since string }

// arrive has the iteration use what has arrived. It fails at the end of ctx.
func (m *eventMerge) arrive(ctx context.Context, use func() bool) error {
	select {
	case m.arrived <- use:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read reads events of one agent until its stream ends or take fails, and returns the ID of the last one. With opened
// it follows them.
func (m *eventMerge) read(ctx context.Context, endpoint string, at streamStart, opened func(),
	take func(api.Event) error) (lastID string, err error) {
	err = m.client.readLines(ctx, endpoint, m.request(at, opened != nil), opened, func(line []byte) error {
		field, value, _ := strings.Cut(string(line), ": ")
		switch field {
		case "id":
			lastID = value
		case "data":
			var event api.Event
			if err := json.Unmarshal([]byte(value), &event); err != nil {
				return api.Errorf(api.CodeUnavailable, "the gateway at %s sent an invalid event: %w", redact.URLs(endpoint), err)
			}
			return take(event)
		}
		return nil
	})
	return lastID, err
}

// request asks one agent for events.
func (m *eventMerge) request(at streamStart, follow bool) transport.Request {
	query := url.Values{"follow": {strconv.FormatBool(follow)}, "pool": {m.options.Pool},
		"type": {strings.Join(m.options.Types, ",")}}
	header := http.Header{}
	switch {
	case !m.options.Since.IsZero():
		query.Set("since", m.options.Since.UTC().Format(time.RFC3339Nano))
	case at.since != "" && at.lastID == "":
		query.Set("since", at.since)
	}
	if at.lastID != "" {
		header.Set("Last-Event-ID", at.lastID)
	}
	return transport.Request{Method: http.MethodGet, Path: "/v1/events?" + query.Encode(), Header: header}
}

// eventEndpoints are the gateways of all live agents, of which list knows the hosts. The error may be about some of
// them only.
func (c *Client) eventEndpoints(ctx context.Context, list func(context.Context) ([]Host, error)) ([]string, error) {
	if c.fixed != nil {
		return c.gateways, nil
	}
	if list == nil {
		list = c.Hosts
	}
	hosts, err := list(ctx)
	if err != nil {
		return nil, err
	}
	var endpoints []string
	var silent []string
	for _, host := range hosts {
		switch {
		case host.HeardAt.IsZero(): // it has no agent
		case host.Heartbeat.Agent == nil:
			silent = append(silent, host.ID)
		default:
			endpoints = append(endpoints, host.Heartbeat.Agent.Endpoint)
		}
	}
	slices.Sort(endpoints)
	endpoints = slices.Compact(endpoints)
	switch {
	case len(silent) > 0:
		return endpoints, api.Errorf(api.CodeUnavailable,
			"%s has not reported its gateway yet; an agent reports it within ten seconds of its start",
			strings.Join(silent, ", "))
	case len(endpoints) == 0:
		return nil, errNoAgents
	}
	return endpoints, nil
}

var errNoAgents = api.Errorf(api.CodeUnavailable,
	"no agent is up, so there are no events to read; tempool history POOL/N shows what a worker did")
