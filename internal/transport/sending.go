package transport

import (
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// countedConn counts the bytes that the system took from it.
type countedConn struct {
	net.Conn
	written atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

// sending knows whether any byte of a request was sent. net/http reports what it has written to its own buffer.
type sending struct {
	mu     sync.Mutex
	conn   *countedConn
	before int64
}

// begin receives the connection that a request takes. net/http retries on another connection only what it has not sent.
func (s *sending) begin(info httptrace.GotConnInfo) {
	conn := info.Conn
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = conn.(*countedConn)
	s.before = s.conn.written.Load()
}

func (s *sending) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn != nil && s.conn.written.Load() > s.before
}
