package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/internal/tracecontext"
)

// eventClient reads a stream of events.
type eventClient struct {
	*answerLines
	lastID string
}

// follow opens a stream of events.
func (e *env) follow(t *testing.T, query, lastID string) *eventClient {
	t.Helper()
	lines := e.lines("GET", "/v1/events"+query, "", "Last-Event-ID", lastID)
	require.Equal(t, http.StatusOK, lines.status)
	require.Equal(t, "text/event-stream", lines.header.Get("Content-Type"))
	return &eventClient{answerLines: lines}
}

// next returns the next event; none at the end of the stream.
func (c *eventClient) next() (event api.Event, found bool) {
	c.t.Helper()
	for line, more := c.line(); more; line, more = c.line() {
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "id":
			c.lastID = value
		case "data":
			require.NoError(c.t, json.Unmarshal([]byte(value), &event))
			return event, true
		}
	}
	return event, false
}

func (c *eventClient) require(eventType string) api.Event {
	c.t.Helper()
	event, found := c.next()
	require.True(c.t, found, "the stream ended")
	require.Equal(c.t, eventType, event.Type)
	return event
}

// stalledReader begins to read events, and reads none.
func (e *env) stalledReader() (net.Conn, *http.Response) {
	e.t.Helper()
	c := e.dialPlain()
	require.NoError(e.t, errorOf(io.WriteString(c.conn, "GET /v1/events?since=1h HTTP/1.1\r\nHost: gateway\r\n\r\n")))
	// the stream has begun; to close its body would read it to its end
	answer, err := http.ReadResponse(c.in, nil)
	require.NoError(e.t, err)
	require.Equal(e.t, http.StatusOK, answer.StatusCode)
	return c.conn, answer
}

// emit emits an event at the gateway's host.
func (e *env) emit(eventType, source string) {
	e.config.Events.Emit(eventType, source, time.Now(), map[string]string{"reason": strings.Repeat("x", 500)})
}

func TestEventsAreStreamedFromNowOn(t *testing.T) {
	e := parallel(t, 0)
	e.emit(api.EventProcessEnded, api.WorkerSource("p/0"))
	stream := e.follow(t, "?pool=p&type=worker.*,process.started", "")
	e.emit(api.EventProcessEnded, api.WorkerSource("p/0"))
	e.emit(api.EventProcessStarted, api.WorkerSource("q/0"))
	e.emit(api.EventProcessStarted, api.WorkerSource("p/0"))
	e.emit(api.EventWorkerTransitioned, api.WorkerSource("p/1"))
	first := stream.require(api.EventProcessStarted)
	require.Equal(t, "/pools/p/workers/0", first.Source)
	require.Equal(t, first.ID, stream.lastID)
	require.Equal(t, "/pools/p/workers/1", stream.require(api.EventWorkerTransitioned).Source)
}

func TestEventsThatAreHeldAreReadAndTheStreamResumed(t *testing.T) {
	e := parallel(t, 0)
	e.config.Events.Emit(api.EventProcessEnded, api.WorkerSource("p/0"), time.Now().Add(-time.Hour), nil)
	e.emit(api.EventProcessStarted, api.WorkerSource("p/0"))
	all := e.follow(t, "?follow=false", "")
	all.require(api.EventProcessEnded)
	all.require(api.EventProcessStarted)
	_, more := all.next()
	require.False(t, more, "it does not follow")
	e.follow(t, "?since=10m", "").require(api.EventProcessStarted)

	// A client that comes back gets what was emitted meanwhile.
	first := e.follow(t, "?since=10m", "")
	first.require(api.EventProcessStarted)
	first.stop()
	e.emit(api.EventWorkerTransitioned, api.WorkerSource("p/0"))
	again := e.follow(t, "", first.lastID)
	again.require(api.EventWorkerTransitioned)
	// So does one that has got no event yet.
	quiet := e.follow(t, "?type=lease.*", "")
	place := quiet.after("id: ")
	quiet.stop()
	e.emit(api.EventLeaseGranted, api.WorkerSource("p/0"))
	e.follow(t, "?type=lease.*", place).require(api.EventLeaseGranted)

	stranger := e.follow(t, "", "there-7")
	missed := decode[api.MissedEvent](t, stranger.require(api.EventMissed).Data)
	require.Contains(t, missed.Reason, "there-7")
	stranger.require(api.EventProcessEnded)
}

func TestEventRequestsAreChecked(t *testing.T) {
	e := parallel(t, 0)
	for _, query := range []string{"?type=lese.*", "?since=yesterday", "?since=-5m", "?follow=perhaps"} {
		e.do("GET", "/v1/events"+query, nil).requireProblem(t, http.StatusBadRequest, api.CodeInvalid)
	}
	e.ok("HEAD", "/v1/events", nil)
}

func TestATokenReadsTheEventsOfItsPools(t *testing.T) {
	tokens, secret := tokensFile(t, []string{"q*"}, "read")
	e := parallel(t, 0, withTokens(tokens))
	for _, source := range []string{api.WorkerSource("p/0"), api.HostSource("here"), api.WorkerSource("q1/0")} {
		e.emit(api.EventProcessStarted, source)
	}
	refused := e.tcp("GET", "/v1/events?pool=p", secret, "")
	require.Equal(t, http.StatusForbidden, refused.status)
	require.Contains(t, refused.problem.Detail, "pool p")
	mine := string(e.tcp("GET", "/v1/events?follow=false", secret, "").body)
	require.Contains(t, mine, `"/pools/q1/workers/0"`)
	require.Equal(t, 1, strings.Count(mine, "data: "), mine)
}

// A reader that stalls delays nobody, and learns what it missed once it reads on.
func TestAStalledReaderOfEventsDelaysNobody(t *testing.T) {
	e := parallel(t, 1)
	conn, answer := e.stalledReader()

	made, stop := e.callers(4)
	const emitted = 4 * events.Size
	for range emitted {
		e.emit(api.EventProcessStarted, api.WorkerSource("p/0"))
	}
	require.Eventually(t, func() bool { return made.Load() > 100 }, timeout, poll)
	stop()

	require.NoError(t, conn.SetReadDeadline(time.Now().Add(timeout)))
	stream := &eventClient{answerLines: linesOf(t, answer)}
	seen, missed := 0, uint64(0)
	for seen+int(missed) < emitted {
		event, found := stream.next()
		require.True(t, found, "after %d events and %d missed", seen, missed)
		if event.Type != api.EventMissed {
			seen++
			continue
		}
		data := decode[api.MissedEvent](t, event.Data)
		missed += data.Count
	}
	require.Equal(t, emitted, seen+int(missed))
	require.NotZero(t, missed)
	require.EqualValues(t, missed, e.gateway.Snapshot().EventsMissed)
}

func TestAStreamSendsItsPlaceAlthoughOtherEventsArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, answer := events.New("here"), httptest.NewRecorder()
		s := eventStream{w: answer, reader: log.FromNow(events.Filter{Types: []string{"lease.*"}})}
		s.place()
		ctx, cancel := context.WithTimeout(t.Context(), 4*keepAliveEvery)
		defer cancel()
		go func() {
			for sleep.For(ctx.Done(), time.Second) {
				log.Emit(api.EventProcessStarted, api.WorkerSource("p/0"), time.Now(), nil)
			}
		}()
		for s.send() || s.wait(ctx) {
		}
		require.Greater(t, strings.Count(answer.Body.String(), "id: "), 3)
	})
}

// A reader that stalls keeps no event alive beyond the ring but the one batch that is being written.
func TestAStalledReaderOfEventsHoldsNoMemoryBeyondTheRing(t *testing.T) {
	e := open(t, 0)
	log := e.config.Events
	watch := log.FromNow(events.Filter{})
	type kept struct {
		pointer weak.Pointer[byte]
		bytes   int
	}
	var all []kept
	long := strings.Repeat("x", 15<<10)
	emitLong := func() { // as much as the ring holds
		for range events.Bytes / len(long) {
			log.Emit(api.EventProcessStarted, api.WorkerSource("p/0"), time.Now(), map[string]string{"reason": long})
			batch, _, _ := watch.Read()
			require.Len(t, batch, 1)
			all = append(all, kept{weak.Make(&batch[0].JSON[0]), len(batch[0].JSON)})
		}
	}
	alive := func() (bytes int) {
		runtime.GC()
		for _, one := range all {
			if one.pointer.Value() != nil {
				bytes += one.bytes
			}
		}
		return bytes
	}
	emitLong()
	const readers = 4
	for range readers {
		e.stalledReader() // has a whole batch, of which the socket takes a part
	}
	emitLong()
	require.LessOrEqual(t, alive(), events.Bytes+readers*events.BatchBytes, "what is alive is in the ring or in a batch")
	require.Greater(t, alive(), events.Bytes/2, "the ring is full")
	runtime.KeepAlive(log)
}

func TestAGatewayThatClosesEndsItsStreams(t *testing.T) {
	e := parallel(t, 0)
	streams := []*answerLines{e.follow(t, "", "").answerLines, e.lines("GET", "/ui/live", "")}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, e.gateway.Close(ctx), "an open stream does not keep it")
	for _, stream := range streams {
		require.Equal(t, http.StatusOK, stream.status)
		require.Empty(t, stream.after("what no stream has: "), "it ends")
	}
}

// Its event says whether a worker may have seen it, and names its trace if that is sampled.
func TestAFailedCallIsAnEvent(t *testing.T) {
	_, tracing := traceInto(t)
	e := parallel(t, 0, tracing)
	refused := e.do("POST", "/v1/pools/p/call/echo", "x", "Tempool-Timeout", "50", "Traceparent", clientParent)
	e.start(0, 1)
	unsampled := strings.TrimSuffix(clientParent, "01") + "00"
	_, unsent := e.gateway.CallPool(trace.ContextWithSpanContext(t.Context(), tracecontext.Parse(unsampled, "")), "p",
		pool.Request{Method: "echo", Headers: map[string]string{"": "no header has this name"}})
	e.do("POST", "/v1/pools/p/call/fail", nil, "Traceparent", clientParent)
	e.do("POST", "/v1/pools/p/call/fail", nil, "Traceparent", unsampled)
	e.control.setDown(true)
	e.ok("POST", "/v1/pools/p/call/echo", "x", "Traceparent", unsampled)
	stream := e.follow(t, "?follow=false", "")
	worker, failed := api.WorkerSource("p/0"), api.CallEvent{Incarnation: 1, Method: "fail", Code: api.CodeWorkerError,
		Started: true}
	traced := failed
	traced.TraceID = clientTrace
	for _, want := range []struct {
		source, reason string
		data           api.CallEvent
	}{
		{api.PoolSource("p"), "", api.CallEvent{Method: "echo", Code: refused.problem.Code, TraceID: clientTrace}},
		{worker, "", api.CallEvent{Incarnation: 1, Method: "echo", Code: api.CodeOf(unsent)}},
		{worker, "it cannot be done", traced},
		{worker, "it cannot be done", failed},
	} {
		event := stream.require(api.EventCallFailed)
		require.Equal(t, want.source, event.Source)
		data := decode[api.CallEvent](t, event.Data)
		require.Contains(t, data.Reason, want.reason)
		want.data.Host, want.data.Reason = "here", data.Reason
		require.Equal(t, want.data, data)
	}
	_, more := stream.next()
	require.False(t, more, "the lease holds while Temporal is down, and a call that succeeds is not an event")
	var examples []string
	for _, p := range e.gateway.Snapshot().Pools {
		for _, bucket := range histogramOf(t, p.Calls).Bucket {
			if bucket.Exemplar != nil {
				examples = append(examples, bucket.Exemplar.Label[0].GetValue())
			}
		}
	}
	require.Equal(t, []string{clientTrace}, examples)
}
