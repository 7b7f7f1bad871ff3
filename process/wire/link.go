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
	"time"
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

// link is the Conn of every dialect: it matches answers with callers and keeps the rules of cancelling and breaking.
type link struct {
	o       Options
	d       dialect
	out     *outbox
	closers []io.Closer

	free  chan *slot // places not in flight
	slots []slot
	shift uint // an id is a generation above shift bits of slot index
	taken atomic.Int32

	ping pinger

	mu   sync.Mutex
	err  error         // guarded by mu; set once, before done closes
	done chan struct{} // closed by fail alone
	ctx  context.Context
	end  context.CancelFunc

	asks    chan struct{}  // one token per host call that runs
	running sync.WaitGroup // reader, flusher and host calls
}

// slot is a place in flight. Its fields are guarded by link.mu.
type slot struct {
	index   uint32
	id      uint32 // of the call that has it, 0 when free
	gen     uint32
	w       *waiter // who waits; nil once the caller has left
	method  string
	headers map[string]string
	ctx     context.Context
	grace   *time.Timer // runs while the answer to a cancel is due
}

// waiter is how the reader reaches a caller.
type waiter struct {
	events chan event
	gone   chan struct{} // closed by the caller when it leaves without having taken the final event
}

// event is a chunk, or the end of a call when final.
type event struct {
	chunk []byte
	resp  *Response
	err   error
	final bool
}

// callIDs bounds the ids of calls, so that they are positive in any language's 32-bit integers and leave room for those of pings.
const callIDs = 1 << 30

// chunkQueue bounds the chunks that wait for a slow caller; then the reader waits too, and through it the worker.
const chunkQueue = 8

var waiters = sync.Pool{New: func() any { return &waiter{events: make(chan event, chunkQueue), gone: make(chan struct{})} }}

// newLink starts a Conn. reader and writer may be the same stream; each is closed if it can be.
func newLink(d dialect, r io.Reader, w io.WriteCloser, o Options) *link {
	l := &link{o: o, d: d, out: newOutbox(w), closers: []io.Closer{w}, done: make(chan struct{}), asks: make(chan struct{}, MaxHostCalls)}
	if c, ok := r.(io.Closer); ok && any(r) != any(w) {
		l.closers = append(l.closers, c)
	}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.shift = uint(bits.Len(uint(o.MaxInflight - 1)))
	l.slots = make([]slot, o.MaxInflight)
	l.free = make(chan *slot, o.MaxInflight)
	for i := range l.slots {
		l.slots[i].index = uint32(i)
		l.free <- &l.slots[i]
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
	}
	close(l.done)
	l.mu.Unlock()
	l.end()
	for _, c := range l.closers {
		c.Close() // its error would tell nothing that the reason does not
	}
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

// acquire takes a place in flight, waiting for one while ctx and the Conn live.
func (l *link) acquire(ctx context.Context) (*slot, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case s := <-l.free:
		l.taken.Add(1)
		return s, nil
	default:
	}
	select {
	case s := <-l.free:
		l.taken.Add(1)
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.done:
		return nil, l.Err()
	}
}

// release frees the place whose id was cleared under l.mu.
func (l *link) release(s *slot) {
	l.taken.Add(-1)
	l.free <- s
}

// occupy gives the place to a call and returns its id, unless the Conn has ended.
func (l *link) occupy(s *slot, ctx context.Context, r Request, w *waiter) (uint32, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return 0, l.err
	}
	if s.gen++; s.gen<<l.shift >= callIDs {
		s.gen = 1 // an id is never 0: that stands for no call
	}
	s.id = s.gen<<l.shift | s.index
	s.w, s.ctx, s.method, s.headers = w, ctx, r.Method, r.Headers
	return s.id, nil
}

// vacate clears the place under l.mu; release follows.
func (s *slot) vacate() {
	s.id, s.w, s.ctx, s.method, s.headers = 0, nil, nil, "", nil
	if s.grace != nil {
		s.grace.Stop()
		s.grace = nil
	}
}

// at finds the place of a call in flight under l.mu; nil when none has this id.
func (l *link) at(id uint32) *slot {
	index := id & (1<<l.shift - 1)
	if id == 0 || int(index) >= len(l.slots) || l.slots[index].id != id {
		return nil
	}
	return &l.slots[index]
}

// finish gives a call its answer and frees its place; false when no call with this id is in flight.
func (l *link) finish(id uint32, resp *Response, err error) bool {
	l.mu.Lock()
	s := l.at(id)
	if s == nil {
		l.mu.Unlock()
		return false
	}
	w := s.w
	s.vacate()
	l.mu.Unlock()
	l.release(s)
	if w != nil {
		l.push(w, event{resp: resp, err: err, final: true})
	}
	return true
}

// chunk gives a call a piece of its stream; false when no call with this id is in flight.
func (l *link) chunk(id uint32, data []byte) bool {
	l.mu.Lock()
	s := l.at(id)
	if s == nil {
		l.mu.Unlock()
		return false
	}
	w := s.w
	l.mu.Unlock()
	if w != nil {
		l.push(w, event{chunk: data})
	}
	return true
}

func (l *link) push(w *waiter, e event) {
	select {
	case w.events <- e:
		return
	default:
	}
	select {
	case w.events <- e:
	case <-w.gone:
	case <-l.done:
	}
}

// abandon is the caller leaving before its answer: the place stays taken, the worker is asked to answer soon, and the Conn
// breaks if it does not. It reports false if the answer has come already.
func (l *link) abandon(s *slot, id uint32) bool {
	l.mu.Lock()
	if s.id != id || l.err != nil {
		ended := l.err != nil
		l.mu.Unlock()
		return ended
	}
	method := s.method
	s.w, s.ctx, s.headers = nil, nil, nil
	s.grace = time.AfterFunc(l.o.CancelGrace, func() {
		l.mu.Lock()
		due := s.id == id
		l.mu.Unlock()
		if due {
			l.fail(ErrUnanswered)
		}
	})
	l.mu.Unlock()
	if msg := l.d.appendCancel(nil, id, method); len(msg) > 0 {
		l.out.send(msg, nil) // if it cannot be sent, the grace ends the Conn
	}
	return true
}
