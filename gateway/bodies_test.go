package gateway

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

const mebibyte = 1 << 20

// pattern is a body of n bytes that differ from place to place.
func pattern(n int) []byte {
	body := make([]byte, n)
	for i := range body {
		body[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return body
}

// echo posts a body and compares what comes back; unknown hides its length.
func (w *world) echo(body []byte, unknown bool) error {
	var in io.Reader = bytes.NewReader(body)
	if unknown {
		in = struct{ io.Reader }{in}
	}
	response, err := w.http.Post("http://gateway/v1/pools/p/call/echo", "application/octet-stream", in)
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

func TestABodyOf64MiBPassesBothWays(t *testing.T) {
	w := open(t, 1, withSpec(func(sp *spec.Spec) { sp.Pool.MaxMessage = 64 * mebibyte }))
	body := pattern(64 * mebibyte)
	require.NoError(t, w.echo(body, false))
	require.NoError(t, w.echo(body, true), "of unknown length")
	w.do("POST", "/v1/pools/p/call/echo", string(body)+"x").refusedWith(t, http.StatusRequestEntityTooLarge, "payload_too_large")
	w.requireMemoryFree()
}

func TestManyLargeBodiesAtOnceAreReadOneAfterTheOther(t *testing.T) {
	const size, budget, clients = 8 * mebibyte, 10 * mebibyte, 12
	w := open(t, 1, withConfig(func(c *Config) { c.Limits.BodyBytes = budget }))
	body := pattern(size)
	failed := make([]error, clients)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() { failed[i] = w.echo(body, i%2 == 1) })
	}
	group.Wait()
	for _, err := range failed {
		require.NoError(t, err)
	}
	w.requireMemoryFree()
}

// requireMemoryFree asserts that no body holds memory.
func (w *world) requireMemoryFree() {
	w.t.Helper()
	total := w.gateway.config.Limits.BodyBytes
	require.Eventually(w.t, func() bool { return w.gateway.bodies.TryAcquire(total) }, patience, tick, "the memory of some body was not released")
	w.gateway.bodies.Release(total)
}

func TestLargeBodyWaitsForMemoryWhileSmallOnesPass(t *testing.T) {
	w := open(t, 1, withConfig(func(c *Config) { c.Limits.BodyBytes = 10 * mebibyte }))
	release, err := w.gateway.reserveMemory(t.Context(), 10*mebibyte)
	require.NoError(t, err)
	large := background(func() error { return w.echo(pattern(mebibyte), false) })
	require.NoError(t, w.echo([]byte("small"), false))
	require.NoError(t, w.echo(pattern(uncountedBody), false))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.gateway.reserveMemory(ctx, mebibyte)
	require.ErrorIs(t, err, api.ErrUnavailable)
	require.Empty(t, large)
	release()
	require.NoError(t, await(t, large))
	w.requireMemoryFree()
}

func TestBodyLargerThanAllMemoryGetsAllOfIt(t *testing.T) {
	w := open(t, 0, withConfig(func(c *Config) { c.Limits.BodyBytes = mebibyte }))
	release, err := w.gateway.reserveMemory(t.Context(), 64*mebibyte)
	require.NoError(t, err)
	require.False(t, w.gateway.bodies.TryAcquire(1))
	release()
	w.requireMemoryFree()
}

func TestABodyThatComesSlowlyKeepsNoWorkerFromOthers(t *testing.T) {
	w := open(t, 1)
	in, feed := io.Pipe()
	slow := background(func() error {
		response, err := w.http.Post("http://gateway/v1/pools/p/call/echo", "application/octet-stream", in)
		if err == nil {
			defer response.Body.Close()
			_, err = io.Copy(io.Discard, response.Body)
		}
		return err
	})
	_, err := feed.Write(pattern(2 * uncountedBody))
	require.NoError(t, err)
	require.NoError(t, w.echo([]byte("quick"), false))
	require.NoError(t, feed.Close())
	require.NoError(t, await(t, slow))
}

// rawCall sends a call over a connection of its own and reads no more than the answer's header.
func (w *world) rawCall(method, body string) (net.Conn, *http.Response) {
	w.t.Helper()
	conn, err := net.Dial("unix", filepath.Join(w.dir, "gw.sock"))
	require.NoError(w.t, err)
	require.NoError(w.t, conn.(*net.UnixConn).SetReadBuffer(4096))
	_, err = fmt.Fprintf(conn, "POST /v1/pools/p/call/%s HTTP/1.1\r\nHost: gateway\r\nContent-Length: %d\r\n\r\n%s", method, len(body), body)
	require.NoError(w.t, err)
	response, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
	require.NoError(w.t, err)
	return conn, response
}

func TestAClientThatReadsAStreamSlowlyHoldsUpNoOther(t *testing.T) {
	w := open(t, 1, withSpec(func(sp *spec.Spec) {
		sp.Pool.MaxInflight = 4
		sp.Pool.Env["THREADS"] = "4"
	}))
	conn, response := w.rawCall("stream_large", "100000") // 6 GB, of which the client reads nothing
	defer conn.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	for range 20 {
		require.NoError(t, w.echo([]byte("others go on"), false))
	}
	p, found := w.processes.Get("p/0", 1)
	require.True(t, found)
	require.Eventually(t, func() bool { return p.Conn().InFlight() == 0 }, patience, tick, "the stream that nobody reads is cut")
	require.NoError(t, w.echo([]byte("the worker lives"), false))
	require.NoError(t, p.Conn().Err())
}

func TestAThousandIdleConnectionsCostLittleAndServe(t *testing.T) {
	const connections = 1000
	w := open(t, 1)
	require.NoError(t, w.echo([]byte("before"), false))
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before := heap()
	conns := make([]net.Conn, 0, connections)
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
	}()
	for range connections {
		conns = append(conns, w.idle())
	}
	require.Less(t, heap()-before, uint64(connections*64<<10), "both ends of each are in this process")
	require.NoError(t, w.echo([]byte("between"), false))
	for _, conn := range conns[connections-3:] {
		_, err := conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: gateway\r\n\r\n"))
		require.NoError(t, err)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode)
	}
}

// idle opens a connection, has it answered once, and leaves it.
func (w *world) idle() net.Conn {
	w.t.Helper()
	conn, err := net.Dial("unix", filepath.Join(w.dir, "gw.sock"))
	require.NoError(w.t, err)
	_, err = conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: gateway\r\n\r\n"))
	require.NoError(w.t, err)
	response, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	require.NoError(w.t, err)
	said, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	require.True(w.t, strings.Contains(string(said), "ok"))
	return conn
}
