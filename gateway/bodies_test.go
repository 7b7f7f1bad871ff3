package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/spec"
)

const mebibyte = 1 << 20

// pattern is a body of n varying bytes.
func pattern(n int) []byte {
	body := make([]byte, n)
	for i := range body {
		body[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return body
}

// echo posts a body and compares the answer with it; unknown hides its length.
func (e *env) echo(body []byte, unknown bool) error {
	var in io.Reader = bytes.NewReader(body)
	if unknown {
		in = struct{ io.Reader }{in}
	}
	response, err := e.http.Post("http://gateway/v1/pools/p/call/echo", "application/octet-stream", in)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || !bytes.Equal(got, body)) {
		err = fmt.Errorf("%s with %d bytes of %d", response.Status, len(got), len(body))
	}
	return err
}

func TestBodyOf64MiBPassesBothWays(t *testing.T) {
	e := open(t, 1, withSpec(func(sp *spec.Spec) { sp.Pool.MaxMessage = 64 * mebibyte }))
	body := pattern(64 * mebibyte)
	require.NoError(t, e.echo(body, false))
	require.NoError(t, e.echo(body, true), "of unknown length")
	e.gateway.open.each(func(_ net.Conn, c *connection) {
		require.Eventually(t, func() bool { return c.state.Load() == idle }, timeout, poll)
		require.Nil(t, c.body, "an idle connection keeps the last body")
	})
	large := e.do("POST", "/v1/pools/p/call/echo", string(body)+"x")
	large.requireProblem(t, http.StatusRequestEntityTooLarge, api.CodePayloadTooLarge)
	require.False(t, large.problem.Started)
	chunked := e.send("POST", "/v1/pools/p/call/echo", io.MultiReader(bytes.NewReader(body), bytes.NewReader([]byte("x"))))
	require.Equal(t, http.StatusRequestEntityTooLarge, chunked.status)
	e.requireMemoryFree()
}

func TestManyLargeBodiesShareTheMemory(t *testing.T) {
	const size, budget, clients = 4 * mebibyte, 32 * mebibyte, 12
	e := parallel(t, 1, withConfig(func(c *Config) { c.Limits.BodyBytes = budget }))
	body := pattern(size)
	failed := make([]error, clients)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() { failed[i] = e.echo(body, i%2 == 1) })
	}
	group.Wait()
	for _, err := range failed {
		require.NoError(t, err)
	}
	e.requireMemoryFree()
}

// requireMemoryFree asserts that no body and no answer holds memory.
func (e *env) requireMemoryFree() {
	e.t.Helper()
	require.Eventually(e.t, func() bool { return e.gateway.memory.used() == 0 }, timeout, poll,
		"some memory was not released")
}

// hold occupies memory like a body.
func (e *env) hold(n int64) *memoryShare {
	s := &memoryShare{memory: e.gateway.memory}
	require.NoError(e.t, s.growBody(e.t.Context(), n))
	return s
}

func TestLargeBodyWaitsForMemoryWhileSmallOnesPass(t *testing.T) {
	e := parallel(t, 1, withConfig(func(c *Config) { c.Limits.BodyBytes = 10 * mebibyte }))
	first := e.hold(10 * mebibyte)
	exceeding := e.hold(mebibyte) // one body may
	large := background(func() error { return e.echo(pattern(mebibyte), false) })
	require.NoError(t, e.echo([]byte("small"), false))
	require.NoError(t, e.echo(pattern(uncountedBytes), false))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, (&memoryShare{memory: e.gateway.memory}).growBody(ctx, mebibyte), api.ErrUnavailable)
	require.Empty(t, large)
	exceeding.release()
	first.release()
	require.NoError(t, await(t, large))
	e.requireMemoryFree()
}

func TestABodyThatWaitsForMemoryNoLongerLetsTheNextOnePass(t *testing.T) {
	m := &memoryBudget{total: 10}
	grow := func(ctx context.Context, n int64) (s *memoryShare, done <-chan error) {
		s = &memoryShare{memory: m}
		return s, background(func() error { return s.growBody(ctx, n) })
	}
	waiting := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { m.mu.Lock(); defer m.mu.Unlock(); return len(m.waiting) == n }, timeout, poll)
	}
	first, done := grow(t.Context(), 9)
	require.NoError(t, await(t, done))
	_, done = grow(t.Context(), 2) // exceeds the total, as one may
	require.NoError(t, await(t, done))
	first.release()
	ctx, cancel := context.WithCancel(t.Context())
	_, large := grow(ctx, 9)
	waiting(1)
	_, small := grow(t.Context(), 1)
	waiting(2)
	cancel()
	require.ErrorIs(t, await(t, large), api.ErrUnavailable)
	require.NoError(t, await(t, small))
}

func TestAnnouncedBodiesCostNothing(t *testing.T) {
	e := parallel(t, 1, withSpec(func(sp *spec.Spec) { sp.Pool.MaxMessage = 64 * mebibyte }),
		withConfig(func(c *Config) { c.Limits.BodyBytes = 16 * mebibyte }))
	for range 8 {
		require.NoError(t, errorOf(fmt.Fprintf(e.dialPlain().conn,
			"POST /v1/pools/p/call/echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 64*mebibyte)))
	}
	require.NoError(t, e.echo(pattern(8*mebibyte), false))
	e.requireMemoryFree()
}

func TestUnreadAnswersStayWithinTheMemory(t *testing.T) {
	const size, budget, clients = 2 * mebibyte, 10 * mebibyte, 40
	e := parallel(t, 1, withConfig(func(c *Config) { c.Limits.BodyBytes = budget }))
	body := string(pattern(size))
	served := 0
	for range clients {
		_, response := e.rawCall("echo", body) // and reads nothing but the header
		if response.StatusCode == http.StatusOK {
			served++
		}
		require.LessOrEqual(t, e.gateway.memory.used(), int64(budget))
	}
	require.GreaterOrEqual(t, served, budget/size)
	require.Eventually(t, func() bool { return e.echo([]byte(body), false) == nil }, timeout, poll,
		"unread answers give way to clients that read")
	require.LessOrEqual(t, e.gateway.memory.used(), int64(budget))
}

// rawCall sends a call over its own connection and reads only the header of the answer.
func (e *env) rawCall(method, body string) (net.Conn, *http.Response) {
	e.t.Helper()
	conn := e.dialPlain().conn
	require.NoError(e.t, conn.(*net.UnixConn).SetReadBuffer(4096))
	_, err := fmt.Fprintf(conn, "POST /v1/pools/p/call/%s HTTP/1.1\r\nHost: gateway\r\nContent-Length: %d\r\n\r\n%s",
		method, len(body), body)
	require.NoError(e.t, err)
	response, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
	require.NoError(e.t, err)
	return conn, response
}

func TestSlowStreamReaderBlocksNoOtherClient(t *testing.T) {
	e := parallel(t, 1, inflight(4))
	conn, response := e.rawCall("stream_large", "100000") // 6 GB, of which the client reads nothing
	require.Equal(t, http.StatusOK, response.StatusCode)
	for range 20 {
		require.NoError(t, e.echo([]byte("others"), false))
	}
	p, found := e.processes.Get("p/0", 1)
	require.True(t, found)
	require.Eventually(t, func() bool { return p.Conn().InFlight() == 0 }, timeout, poll,
		"the unread stream is disconnected")
	require.NoError(t, e.echo([]byte("the worker lives"), false))
	require.NoError(t, p.Conn().Err())

	require.NoError(t, conn.SetDeadline(time.Now().Add(timeout)))
	require.Error(t, errorOf(io.Copy(io.Discard, response.Body)), "the answer breaks off")
	var failed struct{ Data api.CallEvent }
	require.Eventually(t, func() bool {
		batch, _, _ := e.config.Events.FromOldest(events.Filter{Types: []string{api.EventCallFailed}}).Read()
		return len(batch) == 1 && json.Unmarshal(batch[0].JSON, &failed) == nil
	}, timeout, poll)
	require.Equal(t, api.CodeSlowReader, failed.Data.Code, failed.Data.Reason)
}

func TestThousandIdleConnectionsUseLittleMemory(t *testing.T) {
	const connections = 1000
	e := open(t, 1)
	require.NoError(t, e.echo([]byte("before"), false))
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before := heap()
	clients := make([]*plainClient, 0, connections)
	for range connections {
		c := e.dialPlain()
		require.Contains(t, string(c.mustAsk(t, healthRequest).body), "ok")
		clients = append(clients, c)
	}
	require.Less(t, heap()-before, uint64(connections*64<<10), "both ends of each are in this process")
	require.NoError(t, e.echo([]byte("between"), false))
	for _, c := range clients[connections-3:] {
		require.Equal(t, http.StatusOK, c.mustAsk(t, healthRequest).status)
	}
}

// used is what all requests occupy, in bytes.
func (m *memoryBudget) used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bodies + m.answers
}
