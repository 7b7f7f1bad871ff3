package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHandedOver is the error of a Conn after HandOver.
var ErrHandedOver = errors.New("the connection was handed over to another program")

var errMidMessage = errors.New("the worker is in the middle of a message")

// State is the state of a Conn without its streams, for the program that continues with them.
type State struct {
	// Hello is the worker's; nil for JSON-RPC.
	Hello *Hello `json:"hello,omitempty"`
	// LastID and LastPing keep ids from being used twice.
	LastID   uint32 `json:"last_id,omitempty"`
	LastPing uint32 `json:"last_ping,omitempty"`
	// Pinging means that the newest ping is unanswered, such as by a process that is frozen.
	Pinging bool `json:"pinging,omitempty"`
	// Counts are the worker's counters.
	Counts map[string]int64 `json:"counts,omitempty"`
}

// handOverPoll is the interval at which HandOver checks whether the Conn is quiet.
const handOverPoll = time.Millisecond

// HandOver ends c without notifying the worker, and returns its state and duplicates of its two streams, with which
// Resume continues. From its begin no call, notification or ping starts; it waits until the calls in flight and the
// worker's host calls have been answered, but not for a pong: a frozen process sends none. It fails if ctx ends
// first, if the worker is in the middle of a message, or if a stream has no descriptor; c is unusable then, too.
func HandOver(ctx context.Context, c *Conn) (state State, in, out *os.File, err error) {
	if err := c.quiesce(ctx); err != nil {
		return State{}, nil, nil, err
	}
	if in, err = Duplicate(c.in); err != nil {
		return State{}, nil, nil, err
	}
	if out, err = Duplicate(c.out.w); err != nil {
		in.Close()
		return State{}, nil, nil, err
	}
	state = c.state()
	c.fail(ErrHandedOver)
	return state, in, out, nil
}

// quiesce stops everything on the Conn but its writer.
func (c *Conn) quiesce(ctx context.Context) error {
	c.mu.Lock()
	c.handingOver = true
	c.mu.Unlock()
	if err := c.awaitQuiet(ctx, func() bool { return c.InFlight() == 0 }); err != nil {
		return err
	}
	if err := stopReading(c.in); err != nil {
		return err
	}
	select {
	case <-c.readEnded:
	case <-c.done:
		return c.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !errors.Is(c.readErr, os.ErrDeadlineExceeded) {
		return c.readErr
	}
	return c.awaitQuiet(ctx, func() bool { return len(c.hostCalls) == 0 && c.out.isDrained() })
}

func (c *Conn) awaitQuiet(ctx context.Context, quiet func() bool) error {
	ticker := time.NewTicker(handOverPoll)
	defer ticker.Stop()
	for !quiet() {
		select {
		case <-ticker.C:
		case <-c.done:
			return c.Err()
		case <-ctx.Done():
			return fmt.Errorf("the worker has not answered everything: %w", ctx.Err())
		}
	}
	return c.Err()
}

// refusal is why nothing more may be sent; nil while the Conn works.
func (c *Conn) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusalLocked()
}

func (c *Conn) refusalLocked() error {
	if c.err == nil && c.handingOver {
		return ErrHandedOver
	}
	return c.err
}

// ended takes the end of the reader: it ends the Conn, unless HandOver has stopped the reader.
func (c *Conn) ended(err error) {
	c.mu.Lock()
	stopped := c.handingOver && (errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, errMidMessage))
	c.mu.Unlock()
	if !stopped {
		c.fail(err)
	}
}

// stopReading makes a Read, the one in progress too, fail with os.ErrDeadlineExceeded.
func stopReading(stream any) error {
	limited, ok := stream.(interface{ SetReadDeadline(time.Time) error })
	if !ok {
		return errors.New("the stream of this connection has no read deadline")
	}
	if err := limited.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return fmt.Errorf("stop reading: %w", err)
	}
	return nil
}

// Duplicate returns another descriptor of a stream, whose mode stays as it is.
func Duplicate(stream any) (*os.File, error) {
	fd, err := duplicate(stream)
	if err != nil {
		return nil, fmt.Errorf("duplicate a stream: %w", err)
	}
	return os.NewFile(uintptr(fd), "stream of a worker"), nil
}

// duplicate is Duplicate without an os.File, which the runtime polls.
func duplicate(stream any) (fd int, err error) {
	dup := func(original uintptr) { fd, err = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 3) }
	var unusable error
	switch s := stream.(type) {
	case *unpolledWriter:
		unusable = s.control(dup)
	case syscall.Conn:
		var raw syscall.RawConn
		if raw, unusable = s.SyscallConn(); unusable == nil {
			unusable = raw.Control(dup)
		}
	default:
		unusable = errors.New("the stream of this connection has no descriptor")
	}
	return fd, errors.Join(unusable, err)
}

func (c *Conn) state() State {
	s := State{Counts: CountsOf(c)}
	if hello, ok := HelloOf(c); ok {
		s.Hello = &hello
	}
	c.mu.Lock()
	s.LastID, s.LastPing, s.Pinging = c.lastID, c.ping.last, c.ping.pong != nil
	c.mu.Unlock()
	return s
}

// restore sets the state of a Conn that has not started.
func (c *Conn) restore(s State) {
	c.lastID = s.LastID
	c.ping.last = s.LastPing
	if s.Pinging {
		c.ping.expect()
	}
	c.counters.totals = s.Counts
}

// ResumeFrames is NewFrames for streams and a state of HandOver: the worker notices nothing.
func ResumeFrames(in io.ReadCloser, out io.WriteCloser, s State, o Options) (*Conn, error) {
	if s.Hello == nil {
		return nil, errors.New("the state of this connection has no hello")
	}
	o = o.withDefaults()
	d := &frames{max: o.MaxMessage, ready: make(chan struct{}), hello: *s.Hello}
	close(d.ready)
	return newConn(d, in, out, s, o), nil
}

// ResumeJSONRPC is NewJSONRPC for streams and a state of HandOver.
func ResumeJSONRPC(r io.Reader, w io.WriteCloser, framing string, s State, o Options) (*Conn, error) {
	o = o.withDefaults()
	in, err := newFraming(framing, r, o)
	if err != nil {
		return nil, err
	}
	return newConn(&jsonrpc{framing: in, framingName: framing, o: o}, r, w, s, o), nil
}
