package gateway

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/logging"
	"github.com/tempool/tempool/internal/logging/logtest"
)

// watchedConn counts the writes that no deadline bounds.
type watchedConn struct {
	net.Conn
	deadline  atomic.Bool
	unbounded *atomic.Int64
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
		&memoryBudget{total: 1 << 20}, slog.New(slog.DiscardHandler))
	server := http.Server{
		Handler:     http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return withConnection(ctx, c, timeout) },
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	defer serving.Wait()
	defer server.Close()
	client, err := dialPlain("tcp", tcp.Addr().String())
	require.NoError(t, err)
	defer client.conn.Close()
	for range 3 {
		require.Equal(t, "ok", string(client.mustAsk(t, healthRequest).body))
	}
	require.Zero(t, watched.unbounded.Load(),
		"a client that reads nothing would hold the connection and the answer's memory")
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

// brokeListener fails as one whose process has no descriptor left.
type brokeListener struct{ net.Listener }

func (brokeListener) Accept() (net.Conn, error) {
	return nil, os.NewSyscallError("accept4", syscall.EMFILE)
}

func TestAListenerWithoutDescriptorsSaysSoOnce(t *testing.T) {
	t.Parallel()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var log logtest.Log
	listener := newBoundedListener(brokeListener{tcp}, 1, &clientCounts{most: 1, count: map[string]int{}},
		&memoryBudget{total: 1}, logging.New(&log, slog.LevelInfo))
	for range 3 {
		require.ErrorIs(t, errorOf(listener.Accept()), syscall.EMFILE)
	}
	require.Equal(t, 1, strings.Count(log.String(), "raise LimitNOFILE="), log.String())
	require.NoError(t, listener.Close())
}
