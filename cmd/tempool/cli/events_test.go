package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func fakeEvents() []fakeEvent {
	at := time.Date(2026, 1, 31, 12, 0, 0, 500_000_000, time.UTC)
	return []fakeEvent{
		{event: api.Event{
			SpecVersion: "1.0", ID: "a-1", Source: "/pools/python/workers/0", Type: api.EventWorkerTransitioned, Time: at,
			Data: json.RawMessage(
				`{"from":"ready","to":"failed","event":"exited","reason":"killed by SIGKILL","duration_ms":42000000,` +
					`"metadata":{"signal":"SIGKILL"}}`),
		}},
		{event: api.Event{
			SpecVersion: "1.0", ID: "a-2", Source: "/hosts/web-1", Type: api.EventMissed, Time: at.Add(time.Second), Omitted: 7,
			Data: json.RawMessage(`{"count":3}`),
		}},
	}
}

func TestEventsArePrintedOnALineEach(t *testing.T) {
	f := newFakeControlPlane()
	f.events = fakeEvents()
	shown := succeed(t, f, "events", "python", "--type", "lease.*,worker.*", "--since", "2026-01-31T12:00:00Z", "-f")
	require.Equal(t, `2026-01-31T12:00:00.500Z  worker.transitioned   python/0      ready → failed duration_ms=42000000 – killed by SIGKILL
2026-01-31T12:00:01.500Z  events.missed         web-1         (7 more before) count=3
`, shown.out)
	require.Equal(t, []string{"events {Pool:python Types:[lease.* worker.*] Since:2026-01-31 12:00:00 +0000 UTC " +
		"Newest:0 Follow:true Hosts:<nil>}"}, f.requests)
	lines := strings.Split(strings.TrimSpace(ctl(t, f, "events", "-o", "json").out), "\n")
	require.Len(t, lines, 2)
	event := decode[api.Event](t, result{out: lines[0]})
	require.JSONEq(t, string(f.events[0].event.Data), string(event.Data))
	require.Equal(t, "a-1", event.ID)
}

func TestAnAgentWhoseEventsCannotBeReadIsNamed(t *testing.T) {
	f := newFakeControlPlane()
	for _, code := range []api.Code{api.CodeUnavailable, api.CodeDeadlineExceeded, api.CodeForbidden} {
		silent := fakeEvent{err: api.Errorf(code, "request to the gateway at http://web-2:7460 failed")}
		f.events = append([]fakeEvent{silent}, fakeEvents()...)
		for _, line := range [][]string{{"events"}, {"events", "-f"}} {
			some := succeed(t, f, line...)
			require.Contains(t, some.err, "web-2")
			require.Contains(t, some.out, "ready → failed")
		}
		f.events = []fakeEvent{silent}
		none := fail(t, f, "events")
		require.Contains(t, none.err, "web-2")
	}
	require.Equal(t, 1, strings.Count(fail(t, f, "events", "-f").err, "web-2"), "every agent refuses")
	require.Contains(t, fail(t, f, "events", "-f", "-o", "json").err, `"code": "forbidden"`)
	f.events = append([]fakeEvent{{err: api.Errorf(api.CodeInvalid, "type")}}, fakeEvents()...)
	require.Empty(t, fail(t, f, "events", "-f").out, "every agent would refuse it")
}

func TestEventsOfAPoolThatIsNotRunningFailUnlessThereAreSome(t *testing.T) {
	f := newFakeControlPlane()
	none := fail(t, f, "events", "nowhere")
	require.Contains(t, none.err, "nowhere")
	f.events = fakeEvents()
	succeed(t, f, "events", "nowhere")
}
