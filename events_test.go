package tempool

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// eventLine is one event as a gateway streams it.
func eventLine(agent string, n int, at time.Time) string {
	return fmt.Sprintf("id: %s-%d\ndata: {\"specversion\":\"1.0\",\"id\":\"%s-%d\",\"source\":\"/pools/p/workers/0\","+
		"\"type\":\"process.started\",\"time\":%q,\"data\":{}}\n\n",
		agent, n, agent, n, at.Format(time.RFC3339Nano))
}

// readEvents reads the IDs of events, until there are so many unless that is 0, and the failures beside them.
func readEvents(t *testing.T, c *Client, o EventOptions, most int) (ids []string, failures []error) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for event, err := range c.Events(ctx, o) {
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if ids = append(ids, event.ID); len(ids) == most {
			break
		}
	}
	return ids, failures
}

func TestEventsOfSeveralAgentsComeInTheOrderOfTheirTime(t *testing.T) {
	start := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	serve := func(agent string, seconds ...int) string {
		return serving(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery != "follow=false&pool=p&since=2026-01-31T12%3A00%3A00Z&type=process.%2A" {
				t.Errorf("query %q", r.URL.RawQuery)
			}
			for i, s := range seconds {
				fmt.Fprint(w, eventLine(agent, i+1, start.Add(time.Duration(s)*time.Second)))
			}
		})
	}
	c := dialed(t, Options{Gateways: []string{serve("a", 1, 4), "http://127.0.0.1:1", serve("b", 2, 3)}})
	ids, failures := readEvents(t, c, EventOptions{Pool: "p", Types: []string{"process.*"}, Since: start}, 0)
	require.Equal(t, []string{"a-1", "b-1", "b-2", "a-2"}, ids)
	require.Len(t, failures, 1, "of the agent that does not answer")
	require.Equal(t, api.CodeUnavailable, api.CodeOf(failures[0]))
}

func TestFollowedEventsContinueWhereAStreamBroke(t *testing.T) {
	var requests atomic.Int64
	c := dialed(t, Options{Gateways: []string{serving(t, func(w http.ResponseWriter, r *http.Request) {
		n := int(requests.Add(1))
		if after := r.Header.Get("Last-Event-ID"); n > 1 && after != fmt.Sprintf("a-%d", n-1) {
			t.Errorf("request %d continues after %q", n, after)
		}
		fmt.Fprint(w, eventLine("a", n, time.Now())) // and the stream ends
	})}})
	ids, failures := readEvents(t, c, EventOptions{Follow: true}, 3)
	require.Empty(t, failures)
	require.Equal(t, []string{"a-1", "a-2", "a-3"}, ids)
}

func TestAGatewayThatStopsSendingIsUnavailable(t *testing.T) {
	for name, sends := range map[string]string{"before its answer": "", "after an event": eventLine("a", 1, time.Now())} {
		t.Run(name, func(t *testing.T) {
			c := dialed(t, Options{Gateways: []string{serving(t, func(w http.ResponseWriter, r *http.Request) {
				if sends != "" {
					fmt.Fprint(w, sends)
					_ = http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
			})}})
			c.idleTimeout = 100 * time.Millisecond
			for _, err := range c.Events(t.Context(), EventOptions{Follow: true}) {
				if err != nil {
					require.ErrorIs(t, err, api.ErrUnavailable)
					require.ErrorContains(t, err, "has stopped sending")
					break
				}
			}
		})
	}
}

func TestARefusalEndsTheEvents(t *testing.T) {
	c := dialed(t, Options{Gateways: []string{serving(t, refusing(api.CodeForbidden, false))}})
	for _, follow := range []bool{false, true} {
		_, failures := readEvents(t, c, EventOptions{Follow: follow}, 0)
		require.Len(t, failures, 1)
		require.Equal(t, api.CodeForbidden, api.CodeOf(failures[0]))
	}
}

func TestEventsOfOthersComeWhileAGatewayRefuses(t *testing.T) {
	refuses := serving(t, refusing(api.CodeUnauthorized, false))
	refused := make(chan struct{})
	serves := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("follow") == "true" {
			<-refused
		}
		fmt.Fprint(w, eventLine("b", 1, time.Now()))
	})
	c := dialed(t, Options{Gateways: []string{refuses, serves}})
	for _, follow := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		var ids []string
		failures := 0
		for event, err := range c.Events(ctx, EventOptions{Follow: follow}) {
			if err != nil {
				require.ErrorIs(t, err, api.ErrUnauthorized)
				if failures++; follow {
					close(refused)
				}
				continue
			}
			if ids = append(ids, event.ID); follow {
				break
			}
		}
		require.Equal(t, []string{"b-1"}, ids)
		require.Equal(t, 1, failures)
	}
}

func TestARefusalCountsUntilTheAgentOpensItsStream(t *testing.T) {
	quiet := serving(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout/4)
	m := &eventMerge{ctx: ctx, client: dialed(t, Options{Gateways: []string{quiet}}), options: EventOptions{Follow: true},
		yield:   func(api.Event, error) bool { return true },
		arrived: make(chan func() bool), refused: map[string]bool{}, agents: []string{quiet, "other"}}
	defer m.reading.Wait()
	defer cancel()
	require.True(t, m.fail(quiet, api.ErrUnauthorized))
	m.reading.Go(func() { _ = m.follower().begin(quiet, false)(ctx, func() {}) })
	select {
	case use := <-m.arrived:
		require.True(t, use())
	case <-ctx.Done():
		require.Fail(t, "no stream opens")
	}
	require.True(t, m.fail("other", api.ErrUnauthorized), "the first one answers, though without events")
	require.False(t, m.fail(quiet, api.ErrUnauthorized))

	m.lastIDs = map[string]string{"left": "left-1"}
	m.reading.Go(func() { _, _ = m.follower().endpoints(ctx) })
	select {
	case use := <-m.arrived:
		require.False(t, use(), "one that has left does not answer: %v", m.agents)
	case <-ctx.Done():
		require.Fail(t, "no list of agents comes")
	}
}

func TestEventsAreReadAtTheHostsThatTheCallerKnows(t *testing.T) {
	now := time.Now()
	up := serving(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, eventLine("a", 1, now)) })
	c := dialed(t, Options{Gateways: []string{up}})
	c.fixed = nil
	o := EventOptions{Since: now.Add(-time.Hour), Hosts: func(context.Context) ([]Host, error) {
		return []Host{{ID: "a", HeardAt: now, Heartbeat: api.HostHeartbeat{Agent: &api.AgentReport{Endpoint: up}}},
			{ID: "gone"}}, nil
	}}
	ids, failures := readEvents(t, c, o, 0)
	require.Empty(t, failures)
	require.Equal(t, []string{"a-1"}, ids)
}

func TestTheNewestEventsOfEachAgentAreKept(t *testing.T) {
	start := time.Now().Add(-time.Hour)
	serve := func(agent string, most int) string {
		return serving(t, func(w http.ResponseWriter, _ *http.Request) {
			for n := 1; n <= most; n++ {
				fmt.Fprint(w, eventLine(agent, n, start.Add(time.Duration(n)*time.Second)))
			}
		})
	}
	c := dialed(t, Options{Gateways: []string{serve("a", 17), serve("b", 2)}})
	ids, failures := readEvents(t, c, EventOptions{Newest: 3}, 0)
	require.Empty(t, failures)
	require.Equal(t, []string{"b-1", "b-2", "a-15", "a-16", "a-17"}, ids)
}
