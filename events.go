package tempool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
		m := &eventMerge{ctx: ctx, client: c, options: o, began: time.Now(), arrived: make(chan eventOrError),
			lastIDs: map[string]string{}, refused: map[string]bool{}}
		defer m.reading.Wait()
		defer cancel()
		if fromNow := o.Follow && o.Since.IsZero(); !fromNow && !m.held(ctx, yield) || !o.Follow {
			return
		}
		m.reading.Go(func() { m.follower().run(ctx) })
		for {
			select {
			case <-ctx.Done():
				return
			case one := <-m.arrived:
				if one.agents != nil {
					if m.agents = one.agents; m.allRefuse() {
						return
					}
				} else if !one.opened && !yield(one.event, one.err) || m.isOver(one.endpoint, one.err) {
					return
				}
			}
		}
	}
}

// eventOrError is what an agent sent, that it has opened its stream, or the present agents.
type eventOrError struct {
	endpoint string
	opened   bool
	event    api.Event
	err      error
	agents   []string
}

// eventMerge reads the events of several agents.
type eventMerge struct {
	ctx     context.Context // of the iteration
	client  *Client
	options EventOptions
	began   time.Time
	arrived chan eventOrError
	reading sync.WaitGroup
	lastIDs map[string]string // of the held events that were read, by agent
	agents  []string          // their endpoints
	refused map[string]bool   // by the agents with these endpoints, the newest request
}

// isOver records how a request to an agent, or for the agents, went, and reports whether all further ones will be
// refused.
func (m *eventMerge) isOver(endpoint string, err error) bool {
	code := api.CodeOf(err)
	m.refused[endpoint] = code == api.CodeForbidden || code == api.CodeUnauthorized
	return code == api.CodeInvalid || m.refused[endpoint] && m.allRefuse()
}

// allRefuse reports whether no agent is left that does not refuse.
func (m *eventMerge) allRefuse() bool {
	return !slices.ContainsFunc(m.agents, func(endpoint string) bool { return !m.refused[endpoint] })
}

// held yields the events that the agents hold, and reports whether the iteration continues.
func (m *eventMerge) held(ctx context.Context, yield func(api.Event, error) bool) bool {
	endpoints, err := m.client.eventEndpoints(ctx, m.options.Hosts)
	if err != nil && (!yield(api.Event{}, err) || m.isOver("", err)) {
		return false
	}
	m.agents = endpoints
	var mu sync.Mutex
	all, failures := readAll(endpoints, func(endpoint string) (held []api.Event, err error) {
		lastID, err := m.read(ctx, endpoint, streamStart{}, nil, func(e api.Event) bool {
			held = append(held, e)
			return true
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
		if !yield(api.Event{}, failure.err) || m.isOver(failure.endpoint, failure.err) {
			return false
		}
	}
	for _, event := range all {
		if !yield(event, nil) {
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
				m.arrive(ctx, eventOrError{agents: endpoints})
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
				opened := func() { m.arrive(ctx, eventOrError{endpoint: endpoint, opened: true}) }
				last, err := m.read(ctx, endpoint, at, opened, func(e api.Event) bool {
					answered()
					return m.arrive(ctx, eventOrError{endpoint: endpoint, event: e})
				})
				at.lastID = cmp.Or(last, at.lastID)
				return err
			}
		},
		failed: func(endpoint string, err error) { m.arrive(m.ctx, eventOrError{endpoint: endpoint, err: err}) },
	}
}

// streamStart is where reading a stream begins: after an event, else at a time, else now.
type streamStart struct{ lastID, since string }

func (m *eventMerge) arrive(ctx context.Context, one eventOrError) bool {
	select {
	case m.arrived <- one:
		return true
	case <-ctx.Done():
		return false
	}
}

// read reads events of one agent until its stream ends or take returns false, and returns the ID of the last one. With
// opened it follows them.
func (m *eventMerge) read(ctx context.Context, endpoint string, at streamStart, opened func(),
	take func(api.Event) bool) (lastID string, err error) {
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
			if !take(event) {
				return errEnough
			}
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return lastID, err
}

// errEnough ends the reading of a stream.
var errEnough = errors.New("the reader stopped")

// request asks one agent for events.
func (m *eventMerge) request(at streamStart, follow bool) transport.Request {
	query := url.Values{"follow": {strconv.FormatBool(follow)}}
	if m.options.Pool != "" {
		query.Set("pool", m.options.Pool)
	}
	if len(m.options.Types) > 0 {
		query.Set("type", strings.Join(m.options.Types, ","))
	}
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
