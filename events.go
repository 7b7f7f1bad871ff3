package tempool

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/transport"
)

// EventOptions select events. The zero value selects all that agents hold.
type EventOptions struct {
	Pool  string    // only events of this pool
	Types []string  // only these types: globs such as lease.*
	Since time.Time // only events since then; with Follow the default is now
	// Follow goes on with the events that happen from now on, at agents that start later, too.
	Follow bool
}

const (
	// eventSilence is after how long a stream of events without even a keep-alive counts as lost.
	eventSilence = time.Minute
	// maxEventLine bounds one line of a stream of events, in bytes.
	maxEventLine = 1 << 20
	// agentsInterval is the time between two looks for agents that have started, and between two attempts to reach one.
	agentsInterval = 3 * time.Second
)

// Events yields the events that the agents of the namespace hold, in the order of their time, and with Follow those from now on, as they arrive.
// With Options.Gateways it reads these agents alone. A coded error is about one agent, and the iteration goes on: with Follow the agent is
// asked again. The last error of an iteration without Follow, and CodeInvalid, CodeForbidden and CodeUnauthorized, end it.
func (c *Client) Events(ctx context.Context, o EventOptions) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		m := &eventMerge{client: c, options: o, began: time.Now(), arrived: make(chan eventOrError), places: map[string]string{}}
		defer m.reading.Wait()
		defer cancel()
		if fromNow := o.Follow && o.Since.IsZero(); !fromNow && !m.held(ctx, yield) || !o.Follow {
			return
		}
		m.reading.Go(func() { m.follow(ctx) })
		for {
			select {
			case <-ctx.Done():
				return
			case one := <-m.arrived:
				if !yield(one.event, one.err) || one.err != nil && isRefusal(one.err) {
					return
				}
			}
		}
	}
}

// isRefusal reports whether an agent will refuse every further request, too.
func isRefusal(err error) bool {
	return slices.Contains([]api.Code{api.CodeInvalid, api.CodeForbidden, api.CodeUnauthorized}, api.CodeOf(err))
}

type eventOrError struct {
	event api.Event
	err   error
}

// eventMerge reads the events of several agents.
type eventMerge struct {
	client  *Client
	options EventOptions
	began   time.Time
	arrived chan eventOrError
	reading sync.WaitGroup
	places  map[string]string // in the stream of each agent whose held events were read
}

// held yields the events that the agents hold, and reports whether the iteration goes on.
func (m *eventMerge) held(ctx context.Context, yield func(api.Event, error) bool) bool {
	endpoints, err := m.client.eventEndpoints(ctx)
	if err != nil && !yield(api.Event{}, err) || isRefusal(err) {
		return false
	}
	var mu sync.Mutex
	var all []api.Event
	var failures []error
	var reading sync.WaitGroup
	for _, endpoint := range endpoints {
		reading.Go(func() {
			var own []api.Event
			place, err := m.read(ctx, endpoint, start{}, false, func(e api.Event) bool {
				own = append(own, e)
				return true
			})
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
			if err != nil {
				failures = append(failures, err)
				return
			}
			m.places[endpoint] = place
		})
	}
	reading.Wait()
	slices.SortStableFunc(all, func(a, b api.Event) int { return a.Time.Compare(b.Time) })
	for _, err := range failures {
		if !yield(api.Event{}, err) || isRefusal(err) {
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

// follow reads the streams of all agents until ctx ends, those that start meanwhile included.
func (m *eventMerge) follow(ctx context.Context) {
	var reading sync.WaitGroup
	defer reading.Wait()
	followed := map[string]bool{}
	begin := func(endpoint string, at start) {
		if !followed[endpoint] {
			followed[endpoint] = true
			reading.Go(func() { m.followOne(ctx, endpoint, at) })
		}
	}
	for endpoint, place := range m.places {
		begin(endpoint, start{place: place})
	}
	reported := ""
	for first := true; ; first = false {
		endpoints, err := m.client.eventEndpoints(ctx)
		if err != nil && err.Error() != reported {
			reported = err.Error()
			if !m.arrive(ctx, eventOrError{err: err}) {
				return
			}
		}
		for _, endpoint := range endpoints {
			if first {
				begin(endpoint, start{})
			} else { // by the agent's clock
				begin(endpoint, start{since: time.Since(m.began).String()})
			}
		}
		if !pause(ctx, agentsInterval) {
			return
		}
	}
}

// start is where the reading of a stream begins: after a place, else at a time, else now.
type start struct{ place, since string }

// followOne reads the stream of one agent, again and again, until ctx ends. It reports a failure once until the agent answers again.
func (m *eventMerge) followOne(ctx context.Context, endpoint string, at start) {
	reported := false
	for ctx.Err() == nil {
		last, err := m.read(ctx, endpoint, at, true, func(e api.Event) bool {
			reported = false
			return m.arrive(ctx, eventOrError{event: e})
		})
		at.place = cmp.Or(last, at.place)
		if err != nil && ctx.Err() == nil && !reported {
			reported = true
			if !m.arrive(ctx, eventOrError{err: err}) {
				return
			}
		}
		if !pause(ctx, agentsInterval/3) {
			return
		}
	}
}

func (m *eventMerge) arrive(ctx context.Context, one eventOrError) bool {
	select {
	case m.arrived <- one:
		return true
	case <-ctx.Done():
		return false
	}
}

// read reads events of one agent until its stream ends or take returns false, and returns the place that it has reached.
func (m *eventMerge) read(ctx context.Context, endpoint string, at start, follow bool, take func(api.Event) bool) (place string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
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
	case at.since != "" && at.place == "":
		query.Set("since", at.since)
	}
	if at.place != "" {
		header.Set("Last-Event-ID", at.place)
	}
	reply, err := m.client.transport.Do(ctx, endpoint, transport.Request{Method: http.MethodGet, Path: "/v1/events?" + query.Encode(), Header: header})
	if err != nil {
		return "", err
	}
	defer reply.Close()
	silence := time.AfterFunc(eventSilence, cancel)
	defer silence.Stop()
	lines := bufio.NewScanner(reply.Body)
	lines.Buffer(nil, maxEventLine)
	for lines.Scan() {
		silence.Reset(eventSilence)
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			place = value
		case "data":
			var event api.Event
			if err := json.Unmarshal([]byte(value), &event); err != nil {
				return place, api.Errorf(api.CodeUnavailable, "the gateway at %s sent an event that is none: %w", endpoint, err)
			}
			if !take(event) {
				return place, nil
			}
		}
	}
	if err := lines.Err(); err != nil {
		return place, reply.Interrupted(err)
	}
	return place, nil
}

// eventEndpoints are the gateways of all live agents. The error may be about some of them only.
func (c *Client) eventEndpoints(ctx context.Context) ([]string, error) {
	if c.fixed != nil {
		return c.fixed.URLs(), nil
	}
	hosts, err := c.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	var endpoints []string
	var silent []string
	for _, host := range hosts {
		switch {
		case host.HeardAt.IsZero(): // it has no agent
		case host.Vitals.Agent == nil:
			silent = append(silent, host.ID)
		default:
			endpoints = append(endpoints, host.Vitals.Agent.Endpoint)
		}
	}
	slices.Sort(endpoints)
	endpoints = slices.Compact(endpoints)
	switch {
	case len(silent) > 0:
		return endpoints, api.Errorf(api.CodeUnavailable, "%s has not reported its gateway; an agent does within ten seconds of its start", strings.Join(silent, ", "))
	case len(endpoints) == 0:
		return nil, errNoAgents
	}
	return endpoints, nil
}

var errNoAgents = api.Errorf(api.CodeUnavailable, "no agent is up, so nobody has events; ctl history POOL/N shows what a worker did")

// pause waits for d, and reports false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
