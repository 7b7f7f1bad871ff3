package gateway

import (
	"errors"
	"os"
	"sync"
	"time"
)

// readDeadline is the deadline of a connection's reads. The server moves it seven times for each request, and most
// requests arrive with one read. So the connection below has a deadline that is seldom moved: never later than the one
// wanted, often earlier. A read that it ends too early is repeated.
type readDeadline struct {
	mu      sync.Mutex
	wanted  time.Time // zero for none
	below   time.Time // of the connection below; zero for none
	passed  bool      // below has ended a read
	reading bool
}

// SetReadDeadline bounds the read in progress, if there is one, and later ones.
func (c *connection) SetReadDeadline(t time.Time) error {
	d := &c.reads
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = t
	if !d.reading { // the next read moves it, if it must be moved
		return nil
	}
	return c.moveReadDeadlineLocked()
}

// moveReadDeadlineLocked moves the deadline of the connection below if that is later than the one wanted, or has
// passed.
func (c *connection) moveReadDeadlineLocked() error {
	d := &c.reads
	later := !d.wanted.IsZero() && (d.below.IsZero() || d.wanted.Before(d.below))
	if !later && (!d.passed || d.below.Equal(d.wanted)) {
		return nil
	}
	d.below, d.passed = d.wanted, false
	return c.Conn.SetReadDeadline(d.wanted)
}

// Read reads until the deadline that is wanted.
func (c *connection) Read(b []byte) (int, error) {
	d := &c.reads
	for {
		d.mu.Lock()
		err := c.moveReadDeadlineLocked()
		d.reading = err == nil
		d.mu.Unlock()
		if err != nil {
			return 0, err
		}
		n, err := c.Conn.Read(b)
		d.mu.Lock()
		d.reading = false
		early := false
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			d.passed = true
			early = d.wanted.IsZero() || time.Now().Before(d.wanted)
		}
		d.mu.Unlock()
		if !early {
			return n, err
		}
	}
}
