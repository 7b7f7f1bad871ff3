package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
)

// codec encodes and decodes the messages of one protocol.
type codec interface {
	// encode appends a request to dst, or one without a response if id is 0. It returns the body to be written after head,
	// or appends it and returns nil. timeout is in ms, negative for none. It is safe for concurrent use; if the message
	// cannot be sent it returns dst unchanged and the reason.
	encode(dst []byte, id uint32, r Request, timeout int64) (head, body []byte, err error)
	// cancel returns the messages that cancel id: one to send at once, and one to send if half of CancelGrace has passed
	// without a response. Either may be nil.
	cancel(id uint32, method string) (now, late []byte)
	appendPing(dst []byte, id uint32) []byte
	// read handles messages until the stream ends or breaks, and returns why. One goroutine runs it.
	read(c *Conn) error
}

// Conn is the connection to one worker. All methods are safe for concurrent use.
//
// Call and Do fail with a *RemoteError, the worker's error response, or with a *CallError for any other reason. A
// malformed, oversized or unsolicited message breaks the Conn, since nothing after it can be trusted. inflight.go has
// its calls in flight.
type Conn struct {
	o       Options
	codec   codec
	in      io.Reader // which codec reads
	out     *writer
	closers []io.Closer

	receiver atomic.Pointer[func(Incoming) bool] // see Receive

	ping     pinger
	counters counters

	places chan struct{} // a token for each call in flight; whoever has sent one may begin a call

	mu     sync.Mutex
	calls  map[uint32]*Exchange // guarded by mu: those in flight, by their ids
	lastID uint32               // guarded by mu
	room   sync.Cond            // of mu: the reader waits for a caller that takes an event or leaves
	err    error                // guarded by mu; set once, before done closes
	// handingOver is guarded by mu: nothing more is sent, see HandOver.
	handingOver bool

	yieldToCaller bool // used by the reader only: it woke a caller, and nothing was sent to the worker since

	readEnded chan struct{} // closed when codec.read has returned readErr
	readErr   error

	ctx    context.Context // ends when the Conn fails, by cancel
	cancel context.CancelFunc
	done   <-chan struct{} // of ctx
	closed chan struct{}   // closed after the streams

	hostCalls  chan struct{}  // one token per running host call
	goroutines sync.WaitGroup // readers, the one that writes a backlog, and host calls
}

// newConn runs a Conn that continues from a state. r and w may be the same stream; r is closed if it is an io.Closer.
func newConn(codec codec, r io.Reader, w io.WriteCloser, s State, o Options) *Conn {
	c := &Conn{
		o: o, codec: codec, in: r, out: &writer{w: w}, closers: []io.Closer{w},
		readEnded: make(chan struct{}), closed: make(chan struct{}), hostCalls: make(chan struct{}, MaxHostCalls),
	}
	c.out.run = c.flush
	if unpolled := newUnpolledWriter(w); unpolled != nil {
		c.out.w, c.out.tryWrite = unpolled, unpolled.tryWrite
		c.closers = append(c.closers, unpolled)
		if any(r) != any(w) {
			w.Close() // so that it is not polled; the stream stays open in its duplicate
		}
	}
	if closer, ok := r.(io.Closer); ok && any(r) != any(w) {
		c.closers = append(c.closers, closer)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.done = c.ctx.Done()
	// Closing waits for the reader, which may be the goroutine that fails the Conn; AfterFunc runs on another goroutine.
	context.AfterFunc(c.ctx, func() {
		for _, closer := range c.closers {
			closer.Close() // its error would add nothing to Err
		}
		close(c.closed)
	})
	c.places, c.calls, c.room.L = make(chan struct{}, o.MaxInflight), map[uint32]*Exchange{}, &c.mu
	c.restore(s)
	c.goroutines.Go(func() {
		c.readErr = c.codec.read(c)
		close(c.readEnded)
		c.ended(c.readErr)
	})
	return c
}

// flush writes the backlog, on a goroutine of its own.
func (c *Conn) flush() {
	c.goroutines.Go(func() {
		if err := c.out.flush(); err != nil {
			c.fail(err)
		}
	})
}

// InFlight counts the calls without a response, cancelled ones included.
func (c *Conn) InFlight() int { return len(c.places) }

// Done is closed when the Conn is broken or closed; every call fails then.
func (c *Conn) Done() <-chan struct{} { return c.done }

// AfterDone calls f on a goroutine of its own once c is Done. Unlike a goroutine that waits for Done, it needs almost
// no memory until then.
func AfterDone(c *Conn, f func()) { context.AfterFunc(c.ctx, f) }

// Writable reports whether c can still send to its worker. A worker that stops on its own takes no further message, but
// still answers the calls that it has, so its Conn is not Done.
func Writable(c *Conn) bool { return !c.out.failed() }

// Err returns why the Conn is Done; nil before.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the Conn, closes its streams and waits for its goroutines. It must not be called from HostCall. Further
// calls do nothing.
func (c *Conn) Close() error {
	c.fail(ErrClosed)
	<-c.closed
	c.goroutines.Wait()
	return nil
}

// fail ends the Conn with err, unless it has ended already.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = peerClosed(err)
	for _, x := range c.calls {
		if x.cancelTimer != nil {
			x.cancelTimer.Stop()
		}
		x.wake()
	}
	c.room.Signal()
	c.out.end() // before Close can wait for the goroutines
	c.mu.Unlock()
	c.cancel()
}

// peerClosed turns the errors of a stream whose worker is gone into ErrPeerClosed.
func peerClosed(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w in the middle of a message", ErrPeerClosed)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrClosedPipe):
		return ErrPeerClosed
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("%w: %w", ErrPeerClosed, err)
	}
	return err
}
