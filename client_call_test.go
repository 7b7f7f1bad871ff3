package tempool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestACallGoesThroughAGatewayOnTCPAndOnASocket(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			g := newFakeGateway(t, network)
			c := clientOf(t, g)
			var answer Answer
			o := CallOptions{Session: "anna", Priority: 7, Timeout: time.Minute, Header: http.Header{"X-Trace": {"t"}}, Answered: func(a Answer) { answer = a }}
			var out struct{ Name string }
			require.NoError(t, c.Pool("p").With(o).Call(t.Context(), "tools/call it", map[string]string{"name": "you"}, &out))
			require.Equal(t, "you", out.Name)
			request, body := g.last()
			require.Equal(t, "/v1/pools/p/call/tools/call%20it", request.URL.EscapedPath())
			require.JSONEq(t, `{"name":"you"}`, body)
			require.Equal(t, "application/json", request.Header.Get("Content-Type"))
			require.Equal(t, []string{"anna", "7", "60000", "t"}, []string{request.Header.Get("Tempool-Session"),
				request.Header.Get("Tempool-Priority"), request.Header.Get("Tempool-Timeout"), request.Header.Get("X-Trace")})
			require.Equal(t, "p/0", answer.Worker)
			require.EqualValues(t, 3, answer.Incarnation)
			require.Equal(t, g.endpoint, answer.Endpoint)
			raw, err := c.Pool("p").CallRaw(t.Context(), "echo", []byte("\x00 not JSON"))
			require.NoError(t, err)
			require.Equal(t, "\x00 not JSON", string(raw))
			require.NoError(t, c.Pool("p").Call(t.Context(), "echo", nil, nil))
			_, body = g.last()
			require.Empty(t, body, "nil is no body at all")
		})
	}
}

func TestTheContextsDeadlineGoesAlong(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	pool := clientOf(t, g).Pool("p")
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for timeout, most := range map[time.Duration]time.Duration{0: time.Hour, time.Minute: time.Minute, 2 * time.Hour: time.Hour} {
		_, err := pool.With(CallOptions{Timeout: timeout}).CallRaw(ctx, "m", nil)
		require.NoError(t, err)
		request, _ := g.last()
		ms, err := strconv.Atoi(request.Header.Get("Tempool-Timeout"))
		require.NoError(t, err)
		require.InDelta(t, most.Milliseconds(), ms, 60_000)
		require.LessOrEqual(t, int64(ms), most.Milliseconds())
	}
	_, err := pool.CallRaw(t.Context(), "m", nil)
	require.NoError(t, err)
	request, _ := g.last()
	require.Empty(t, request.Header.Get("Tempool-Timeout"))
}

func TestACallThatOutlastsItsContextEndsWithIt(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	entered := make(chan struct{}, 2)
	g.answer = func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
	}
	pool := clientOf(t, g).Pool("p")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := pool.Call(ctx, "slow", nil, nil)
	require.ErrorIs(t, err, api.ErrDeadlineExceeded)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, mayHaveStarted(err))
	<-entered
	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	err = pool.Call(ctx, "slow", nil, nil)
	require.ErrorIs(t, err, api.ErrCancelled)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 2, g.served(), "it is not made again")
	err = pool.Call(ctx, "slow", nil, nil)
	require.ErrorIs(t, err, api.ErrCancelled)
	require.False(t, mayHaveStarted(err), "nothing was sent")
}

func TestOnlyACallThatNobodyCanHaveSeenIsMadeAgain(t *testing.T) {
	for _, c := range []struct {
		code    api.Code
		started bool
		again   bool
	}{
		{api.CodeUnavailable, false, true}, {api.CodeNoWorkers, false, true}, {api.CodeQueueFull, false, true}, {api.CodeWorkerCrashed, false, true},
		{api.CodeUnavailable, true, false}, {api.CodeWorkerCrashed, true, false}, {api.CodeWorkerError, true, false}, {api.CodeQueueFull, true, false},
		{api.CodeDeadlineExceeded, false, false}, {api.CodeQueueTimeout, false, false}, {api.CodeRateLimited, false, false},
		{api.CodeInvalid, false, false}, {api.CodePoolNotFound, false, false}, {api.CodePayloadTooLarge, false, false},
	} {
		t.Run(fmt.Sprintf("%s, started %t", c.code, c.started), func(t *testing.T) {
			bad, good := newFakeGateway(t, "tcp"), newFakeGateway(t, "tcp")
			bad.answer = refusing(c.code, c.started)
			client := clientOf(t, bad, good)
			client.fixed.endpoints[1].inFlight = 1 // so that bad is asked first
			out, err := client.Pool("p").CallRaw(t.Context(), "m", []byte("hi"))
			require.Equal(t, 1, bad.served())
			if c.again {
				require.NoError(t, err)
				require.Equal(t, "hi", string(out))
				return
			}
			require.Zero(t, good.served())
			var coded *api.Error
			require.ErrorAs(t, err, &coded)
			require.Equal(t, c.code, coded.Code)
			require.Equal(t, c.started, coded.Started)
			require.Equal(t, 1500*time.Millisecond, coded.RetryAfter)
			require.ErrorIs(t, err, &api.Error{Code: c.code})
		})
	}
}

func TestAGatewayThatIsGoneIsLeftOut(t *testing.T) {
	dead, live := newFakeGateway(t, "unix"), newFakeGateway(t, "tcp")
	client := clientOf(t, dead, live)
	dead.server.Close()
	for range 50 {
		require.NoError(t, client.Pool("p").Call(t.Context(), "m", 1, nil))
	}
	require.Equal(t, 50, live.served())
	live.server.Close()
	client.transport.close() // else the call could be written to a connection whose end has not been noticed
	err := client.Pool("p").Call(t.Context(), "m", 1, nil)
	require.ErrorIs(t, err, api.ErrUnavailable)
	require.False(t, mayHaveStarted(err), "a connection that was refused is no call")
}

func TestACallThatBrokeOffAfterItWasSentIsNotMadeAgain(t *testing.T) {
	first, second := newFakeGateway(t, "tcp"), newFakeGateway(t, "tcp")
	first.answer = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	client := clientOf(t, first, second)
	client.fixed.endpoints[1].inFlight = 1
	err := client.Pool("p").Call(t.Context(), "m", 1, nil)
	require.ErrorIs(t, err, api.ErrUnavailable)
	require.True(t, mayHaveStarted(err))
	require.Zero(t, second.served())
}

func TestAWorkersErrorIsToldWhole(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	g.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"code":"worker_error","detail":"m on p/0 failed","started":true,
			"worker_error":{"code":"-32602","message":"no such tool","data":{"tool":"x"}}}`)
	}
	err := clientOf(t, g).Pool("p").Call(t.Context(), "m", nil, nil)
	require.ErrorIs(t, err, api.ErrWorkerError)
	require.ErrorContains(t, err, "no such tool")
	var theirs *WorkerError
	require.True(t, errors.As(err, &theirs))
	require.Equal(t, "-32602", theirs.Code)
	require.JSONEq(t, `{"tool":"x"}`, string(theirs.Data))
}

func TestWhatIsNoGatewayIsUnavailable(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	g.answer = func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }
	err := clientOf(t, g).Pool("p").Call(t.Context(), "m", nil, nil)
	require.ErrorIs(t, err, api.ErrUnavailable)
	require.Equal(t, 1, g.served(), "a redirect is not followed")
	g.answer = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{") }
	var out any
	require.ErrorIs(t, clientOf(t, g).Pool("p").Call(t.Context(), "m", nil, &out), api.ErrWorkerError)
}

func TestMistakesAreFoundBeforeAnythingIsSent(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	c := clientOf(t, g)
	require.ErrorIs(t, c.Pool("p").Call(t.Context(), "", nil, nil), api.ErrInvalid)
	require.ErrorIs(t, c.Pool("p").Call(t.Context(), "m", func() {}, nil), api.ErrInvalid)
	require.ErrorIs(t, c.Pool("../x").Call(t.Context(), "m", nil, nil), api.ErrPoolNotFound)
	require.ErrorIs(t, (&Lease{Lease: api.Lease{ID: "p.0.1.1"}}).Call(t.Context(), "m", nil, nil), api.ErrInvalid)
	require.Zero(t, g.served())
}

func TestAStreamComesPieceByPiece(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	next := make(chan struct{})
	g.answer = func(w http.ResponseWriter, _ *http.Request) {
		for i := range 3 {
			<-next
			_, _ = fmt.Fprintf(w, "piece %d;", i)
			_ = http.NewResponseController(w).Flush()
		}
	}
	pool := clientOf(t, g).Pool("p")
	var pieces []string
	go func() { next <- struct{}{} }()
	for piece, err := range pool.Stream(t.Context(), "m", strings.NewReader("body")) {
		require.NoError(t, err)
		pieces = append(pieces, string(piece))
		if len(pieces) < 3 { // the next one is only sent when this one has been read
			next <- struct{}{}
		}
	}
	require.Equal(t, []string{"piece 0;", "piece 1;", "piece 2;"}, pieces)
	_, body := g.last()
	require.Equal(t, "body", body)
}

func TestLeavingAStreamEarlyCancelsTheCall(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	cancelled := make(chan struct{})
	g.answer = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(cancelled)
	}
	client := clientOf(t, g)
	for piece, err := range client.Pool("p").Stream(t.Context(), "m", nil) {
		require.NoError(t, err)
		require.Equal(t, "first", string(piece))
		break
	}
	select {
	case <-cancelled:
	case <-time.After(patience):
		require.FailNow(t, "the call goes on")
	}
	require.Zero(t, client.fixed.endpoints[0].inFlight)
}

func TestAStreamThatBreaksOffSaysSo(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	g.answer = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	var last error
	var got string
	for piece, err := range clientOf(t, g).Pool("p").Stream(t.Context(), "m", []byte("x")) {
		got += string(piece)
		last = err
	}
	require.Equal(t, "half", got)
	require.ErrorIs(t, last, api.ErrUnavailable)
	require.True(t, mayHaveStarted(last))
}

func TestAReaderIsSentAgainOnlyIfNobodyReadIt(t *testing.T) {
	dead, live := newFakeGateway(t, "tcp"), newFakeGateway(t, "tcp")
	client := clientOf(t, dead, live)
	dead.server.Close()
	client.fixed.endpoints[1].inFlight = 1
	for piece, err := range client.Pool("p").Stream(t.Context(), "m", io.LimitReader(strings.NewReader("whole"), 5)) {
		require.NoError(t, err)
		require.Equal(t, "whole", string(piece))
	}
	require.Equal(t, 1, live.served())
	refused, never := newFakeGateway(t, "tcp"), newFakeGateway(t, "tcp")
	refused.answer = refusing(api.CodeNoWorkers, false)
	client = clientOf(t, refused, never)
	client.fixed.endpoints[1].inFlight = 1
	for _, err := range client.Pool("p").Stream(t.Context(), "m", io.LimitReader(strings.NewReader("whole"), 5)) {
		require.ErrorIs(t, err, api.ErrNoWorkers)
	}
	require.Zero(t, never.served(), "half of a body is no call")
}

func TestATokenIsShownToThoseAloneWhoMaySeeIt(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	c, err := Dial(t.Context(), Options{Gateways: []string{g.endpoint}, GatewayToken: "secret secret secret"})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Pool("p").Call(t.Context(), "m", nil, nil))
	request, _ := g.last()
	require.Equal(t, "Bearer secret secret secret", request.Header.Get("Authorization"))
	for text, want := range map[string]bool{"http://127.0.0.1:1": true, "http://[::1]:1": true, "https://example.org": true, "http://example.org": false,
		"http://10.0.0.1:7460": false, "http://localhost:1": true, "http://gateway": false} {
		request, err := http.NewRequest(http.MethodGet, text, nil)
		require.NoError(t, err)
		require.Equal(t, want, private(request.URL), text)
	}
}

func TestCallsAreSpreadByWorkersAndByWhatIsInFlight(t *testing.T) {
	now := time.Now()
	one, three := &endpointState{endpoint: "one", workers: 1}, &endpointState{endpoint: "three", workers: 3}
	counts := map[string]int{}
	for range 400 {
		l := pickEndpoint([]*endpointState{one, three}, nil, now)
		l.inFlight++
		counts[l.endpoint]++
	}
	require.InDelta(t, 100, counts["one"], 2)
	one.inFlight, three.inFlight = 0, 0
	clear(counts)
	for range 4000 { // calls one after the other
		counts[pickEndpoint([]*endpointState{one, three}, nil, now).endpoint]++
	}
	require.InDelta(t, 1000, counts["one"], 250)
	one.markFailed(now)
	require.Equal(t, three, pickEndpoint([]*endpointState{one, three}, nil, now))
	require.Equal(t, one, pickEndpoint([]*endpointState{one, three}, map[string]bool{"three": true}, now), "a gateway that rests is better than none")
	require.Nil(t, pickEndpoint([]*endpointState{one}, map[string]bool{"one": true}, now))
	for range 20 {
		one.markFailed(now)
	}
	require.Equal(t, now.Add(endpointMaxBackoff), one.backoffUntil)
	one.markHealthy()
	require.Equal(t, one, pickEndpoint([]*endpointState{one, {endpoint: "busy", workers: 1, inFlight: 1}}, nil, now))
}

func TestTheRosterNamesTheGateways(t *testing.T) {
	at := func(endpoint string, state string) api.RosterEntry {
		var e api.RosterEntry
		require.NoError(t, json.Unmarshal(fmt.Appendf(nil, `{"endpoint":%q,"state":%q}`, endpoint, state), &e))
		return e
	}
	old := &endpointState{endpoint: "a", workers: 9, inFlight: 4}
	lanes := endpointsOf([]api.RosterEntry{at("a", "ready"), at("b", "busy"), at("a", "busy"), at("c", "failed"), at("", "ready")}, []*endpointState{old})
	require.Len(t, lanes, 2)
	require.Same(t, old, lanes[0], "what is in flight stays counted")
	require.Equal(t, 2, lanes[0].workers)
	require.Equal(t, endpointState{endpoint: "b", workers: 1}, *lanes[1])
	gone := at("d", "stopped")
	gone.Gone = true
	lanes = endpointsOf([]api.RosterEntry{at("c", "failed"), at("c", "starting"), gone}, nil)
	require.Equal(t, []*endpointState{{endpoint: "c", workers: 2}}, lanes, "where none serves, those that may again")
	require.Empty(t, endpointsOf([]api.RosterEntry{at("", "pending")}, nil))
}

func TestAGatewayThatNamesOthersIsBelieved(t *testing.T) {
	known, other := newFakeGateway(t, "tcp"), newFakeGateway(t, "unix")
	known.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(w, `{"code":"no_workers","detail":"elsewhere","started":false,"gateways":[{"host":"b","endpoint":%q},{"host":"c","endpoint":""}]}`, other.endpoint)
	}
	client := clientOf(t, known)
	for range 2 {
		var out string
		require.NoError(t, client.Pool("p").Call(t.Context(), "echo", "there", &out))
		require.Equal(t, "there", out)
	}
	require.Equal(t, 2, other.served())
	require.Len(t, client.fixed.endpoints, 2)

	f := newFixedBalancer(nil)
	f.read = func(context.Context) (api.PoolStatus, error) { return api.PoolStatus{}, nil }
	f.add([]string{other.endpoint})
	require.Empty(t, f.endpoints, "where there is a roster, it alone names gateways")
}

func TestALeaseIsUsedByTheGatewayThatGrantedItUntilThatNamesAnother(t *testing.T) {
	granting, serving := newFakeGateway(t, "unix"), newFakeGateway(t, "tcp")
	client := clientOf(t, granting)
	granting.endpoint = "http://192.0.2.1:7460" // what it calls itself leads nowhere
	lease, err := client.Pool("p").TryCheckout(t.Context(), CheckoutOptions{Holder: "me", TTL: time.Minute})
	require.NoError(t, err)
	require.Equal(t, granting.endpoint, lease.Endpoint)
	require.NoError(t, lease.Call(t.Context(), "echo", 1, nil))
	granting.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, `{"code":"lease_not_found","detail":"it is on another host","started":false,"host":"b","endpoint":%q}`, serving.endpoint)
	}
	for range 2 {
		require.NoError(t, lease.Call(t.Context(), "echo", 1, nil))
	}
	require.Equal(t, 2, serving.served())
}
