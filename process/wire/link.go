package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync"
	"sync/atomic"
	"syscall"
)

// dialect is what differs between protocols: how messages look, and how to read them. The append functions may be called by
// many goroutines at once; they return dst as it was, and the reason, when a message cannot be sent.
type dialect interface {
	// appendRequest leaves body to be written behind dst, or appends it and returns nil. timeout is in ms, negative for none.
	appendRequest(dst []byte, id uint32, r Request, timeout int64) (head, body []byte, err error)
	appendNotify(dst []byte, r Request) (head, body []byte, err error)
	// appendCancel appends what asks the worker to answer id soon. It may be empty.
	appendCancel(dst []byte, id uint32, method string) []byte
	appendPing(dst []byte, id uint32) []byte
	// read takes messages in until the stream ends or breaks, and says why. One goroutine runs it.
	read(l *link) error
}

// link is the Conn of every dialect: it keeps the rules of ending. Which call has which place in flight is in places.go.
type link struct {
	o       Options
	d       dialect
	out     *outbox
	closers []io.Closer

	taken atomic.Int32 // places that are taken

	ping   pinger
	counts counts

	mu    sync.Mutex
	slots []slot  // guarded by mu, as all of a slot is
	free  []*slot // guarded by mu: those that no call has
	queue waiting // guarded by mu: empty while a place is free
	shift uint    // an id is a generation above shift bits of slot index
	err   error   // guarded by mu; set once, before done closes

	yield bool // the reader's own: a caller was woken, and nothing was sent to the worker since

	done   chan struct{}   // closed by fail alone
	ctx    context.Context // ends with the Conn
	end    context.CancelFunc
	closed chan struct{} // closed when the streams are

	asks    chan struct{}  // one token per host call that runs
	running sync.WaitGroup // reader, flusher and host calls
}

// newLink starts a Conn. reader and writer may be the same stream; each is closed if it can be.
func newLink(d dialect, r io.Reader, w io.WriteCloser, o Options) *link {
	l := &link{o: o, d: d, out: newOutbox(w), closers: []io.Closer{w}, done: make(chan struct{}), closed: make(chan struct{}), asks: make(chan struct{}, MaxHostCalls)}
	if c, ok := r.(io.Closer); ok && any(r) != any(w) {
		l.closers = append(l.closers, c)
	}
	l.ctx, l.end = context.WithCancel(context.Background())
	// On a goroutine of its own, since closing waits for the reader, and it may be the reader that finds the reason.
	context.AfterFunc(l.ctx, func() {
		for _, c := range l.closers {
			c.Close() // its error would tell nothing that the reason does not
		}
		close(l.closed)
	})
	l.shift = uint(bits.Len(uint(o.MaxInflight - 1)))
	l.slots = make([]slot, o.MaxInflight)
	for i := range l.slots {
		l.slots[i].index = uint32(i)
		l.free = append(l.free, &l.slots[i])
	}
	return l
}

// start lets the goroutines run; everything the dialect needs must stand by then.
func (l *link) start() {
	l.running.Go(func() { l.fail(l.d.read(l)) })
	l.running.Go(func() {
		if err := l.out.flush(l.done); err != nil {
			l.fail(err)
		}
	})
}

func (l *link) InFlight() int         { return int(l.taken.Load()) }
func (l *link) Done() <-chan struct{} { return l.done }

func (l *link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *link) Close() error {
	l.fail(ErrClosed)
	<-l.closed
	l.running.Wait()
	return nil
}

// fail ends the Conn with this reason, unless it has ended already.
func (l *link) fail(err error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err = peerClosed(err)
	for i := range l.slots {
		if t := l.slots[i].grace; t != nil {
			t.Stop()
		}
		if w := l.slots[i].w; w != nil && w.handed {
			select {
			case w.events <- Event{}:
			default: // it has something to wake up for
			}
		}
	}
	close(l.done)
	l.mu.Unlock()
	l.end()
}

// peerClosed marks the operating system's words for a worker that is gone, or going, as ErrPeerClosed.
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
