package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// watchedConn counts the writes that no deadline bounds.
type watchedConn struct {
	net.Conn
	deadline  atomic.Bool
	unbounded *atomic.Int64
}

func (c *watchedConn) SetDeadline(t time.Time) error {
	c.deadline.Store(!t.IsZero())
	return c.Conn.SetDeadline(t)
}

func (c *watchedConn) SetWriteDeadline(t time.Time) error {
	c.deadline.Store(!t.IsZero())
	return c.Conn.SetWriteDeadline(t)
}

func (c *watchedConn) Write(b []byte) (int, error) {
	if !c.deadline.Load() {
		c.unbounded.Add(1)
	}
	return c.Conn.Write(b)
}

// watchedListener makes connections whose writes are watched.
type watchedListener struct {
	net.Listener
	unbounded atomic.Int64
}

func (l *watchedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: conn, unbounded: &l.unbounded}, nil
}

func TestEachAnswerOfAKeptConnectionHasADeadline(t *testing.T) {
	t.Parallel()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	watched := &watchedListener{Listener: tcp}
	listener := newBoundedListener(watched, 8, &clientCounts{most: 8, count: map[string]int{}},
		&memoryBudget{total: 1 << 20})
	server := http.Server{
		Handler:     http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return withConnection(ctx, c, timeout) },
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	defer serving.Wait()
	defer server.Close()
	conn, err := net.Dial("tcp", tcp.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(timeout)))
	answers := bufio.NewReader(conn)
	for range 3 {
		_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		answer, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, "ok", string(body))
	}
	require.Zero(t, watched.unbounded.Load(),
		"a client that reads nothing would hold the connection and the answer's memory")
}

// scriptedConn is a connection below whose reads end as the test says.
type scriptedConn struct {
	net.Conn
	begun     chan struct{}
	ends      chan error
	deadlines chan time.Time // as they were set
}

func (c *scriptedConn) Read([]byte) (int, error) {
	c.begun <- struct{}{}
	if err := <-c.ends; err != nil {
		return 0, err
	}
	return 1, nil
}

func (c *scriptedConn) SetReadDeadline(t time.Time) error {
	c.deadlines <- t
	return nil
}

func TestAReadObeysTheNewestDeadlineThoughTheConnectionHasAnEarlierOne(t *testing.T) {
	t.Parallel()
	below := &scriptedConn{begun: make(chan struct{}), ends: make(chan error), deadlines: make(chan time.Time, 1)}
	c := &connection{Conn: below}
	set := func(deadline time.Time) {
		t.Helper()
		require.NoError(t, c.SetReadDeadline(deadline))
	}
	moved := func(want time.Time, why string) {
		t.Helper()
		require.Equal(t, want, await(t, below.deadlines), why)
	}
	var reading <-chan error
	read := func() {
		reading = background(func() error {
			_, err := c.Read(make([]byte, 1))
			return err
		})
	}
	end := func(err error) {
		t.Helper()
		await(t, below.begun)
		select {
		case below.ends <- err:
		case <-time.After(timeout):
			require.FailNow(t, "nobody reads")
		}
	}
	hour, day, past, none := time.Now().Add(time.Hour), time.Now().Add(24*time.Hour), time.Unix(1, 0), time.Time{}

	set(hour)
	read()
	moved(hour, "the first read needs a deadline")
	end(nil)
	require.NoError(t, await(t, reading))

	for _, later := range []time.Time{day, none} {
		set(later)
		read()
		end(os.ErrDeadlineExceeded)
		moved(later, "the earlier deadline has passed")
		end(nil)
		require.NoError(t, await(t, reading), "the read goes on")
	}

	read()
	await(t, below.begun)
	set(past)
	moved(past, "at once, for the read in progress")
	below.ends <- os.ErrDeadlineExceeded
	require.ErrorIs(t, await(t, reading), os.ErrDeadlineExceeded)
	read()
	end(os.ErrDeadlineExceeded)
	require.ErrorIs(t, await(t, reading), os.ErrDeadlineExceeded, "also a later read")

	set(none)
	read()
	moved(none, "the deadline below has passed")
	end(nil)
	require.NoError(t, await(t, reading))
	require.Empty(t, below.deadlines, "nothing was moved without need")
}

// TestNoRequestSharesItsConnectionWithOthers: a connection has the rights of its one request. The server speaks no
// HTTP/2, and the handler would refuse it.
func TestNoRequestSharesItsConnectionWithOthers(t *testing.T) {
	t.Parallel()
	handler := (&Gateway{}).protect(nil,
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was served") }))
	r := httptest.NewRequest(http.MethodGet, "/v1/pools", nil)
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, r)
	require.Equal(t, http.StatusBadRequest, answer.Code)
	require.Contains(t, answer.Body.String(), "HTTP/1.1")
}
