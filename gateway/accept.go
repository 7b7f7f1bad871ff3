package gateway

import (
	"net"
	"sync"
)

// boundedListener accepts connections up to a number in all, and up to a number of one address. Those above the first
// wait, those above the second are closed.
type boundedListener struct {
	net.Listener
	places  chan struct{}
	clients *clientCounts
	memory  *memoryBudget
	closed  chan struct{}
	close   func() error // closes both; any number of times
}

func newBoundedListener(l net.Listener, most int, clients *clientCounts, memory *memoryBudget) *boundedListener {
	closed := make(chan struct{})
	return &boundedListener{Listener: l, places: make(chan struct{}, most), clients: clients, memory: memory,
		closed: closed, close: sync.OnceValue(func() error {
			close(closed)
			return l.Close()
		})}
}

// Accept waits for a place and a connection.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		select {
		case l.places <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
		conn, err := l.Listener.Accept()
		if err != nil {
			<-l.places
			return nil, err
		}
		c := &connection{Conn: conn}
		c.share = &memoryShare{memory: l.memory, owner: c}
		if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
			c.host = tcp.IP.String()
		} else {
			c.peer = peerOf(conn)
		}
		c.closing = sync.OnceFunc(func() {
			l.clients.leave(c)
			<-l.places
		})
		if c.client = c.host; c.host != "" && !l.clients.enter(c, c.host) {
			_ = c.Close()
			continue
		}
		return c, nil
	}
}

// Close stops Accept. Connections stay open.
func (l *boundedListener) Close() error { return l.close() }

// clientCounts counts connections by client: by address until a request says who the client is.
type clientCounts struct {
	most int // of one client

	mu    sync.Mutex
	count map[string]int
}

// enter counts a connection under a client's name, and no longer under its previous one. It reports false if the client
// has its most.
func (n *clientCounts) enter(c *connection, name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.counted == name || c.left {
		return true
	}
	if n.count[name] >= n.most {
		return false
	}
	n.leaveLocked(c)
	n.count[name]++
	c.counted = name
	return true
}

// leave counts a connection no longer.
func (n *clientCounts) leave(c *connection) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c.left = true
	n.leaveLocked(c)
}

func (n *clientCounts) leaveLocked(c *connection) {
	if c.counted == "" {
		return
	}
	if n.count[c.counted]--; n.count[c.counted] == 0 {
		delete(n.count, c.counted)
	}
	c.counted = ""
}
