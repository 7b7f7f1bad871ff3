package wire

import (
	"io"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// way is by which of its two descriptors a worker sends its frames.
type way int32

const (
	undecided way = iota
	byPipe
	bySocket
)

func (w way) String() string {
	if w == bySocket {
		return "the socket (TEMPOOL_FD)"
	}
	return "the pipe (TEMPOOL_OUT)"
}

// ways keeps to one way: the one by which the worker's first bytes came.
type ways struct{ chosen atomic.Int32 }

func (s *ways) now() way { return way(s.chosen.Load()) }

// choose reports whether w is the way, which it becomes if there is none yet.
func (s *ways) choose(w way) bool {
	return s.chosen.CompareAndSwap(int32(undecided), int32(w)) || s.now() == w
}

// stretch is how the reading of one way ended.
type stretch struct {
	err error
	// final is false if nothing came by this way: the worker may have closed what it does not know, and speaks by the other one.
	final bool
}

// readEither reads the way that the worker chooses until its end. Once that is the pipe, nobody reads the socket.
func (d *frames) readEither(l *link) error {
	socket := make(chan stretch, 1)
	l.running.Go(func() {
		s := d.readWay(l, bySocket, d.socket, newFrameReader(d.r.maxPayload))
		d.socket.Close()
		if s.final {
			l.fail(s.err) // not by the channel alone: the pipe's reader sleeps until the Conn ends
		}
		socket <- s
	})
	if s := d.readWay(l, byPipe, d.in, d.r); s.final {
		return s.err
	}
	return (<-socket).err
}

// readWay waits for the first bytes of a way, and reads on if they choose it.
func (d *frames) readWay(l *link, w way, in io.Reader, r *frameReader) stretch {
	defer r.release()
	for {
		n, err := in.Read(r.space())
		r.filled(n)
		switch {
		case n > 0 && !d.ways.choose(w):
			return stretch{violation("bytes came by %v from a worker that writes its frames to %v: write them all to one of the two", w, d.ways.now()), true}
		case n > 0:
			if w == byPipe {
				d.socket.shut()
			}
			return stretch{d.follow(l, in, r), true}
		case err != nil:
			return stretch{err, false}
		}
	}
}

// returnPath is the reading side of a socket that is written elsewhere.
type returnPath struct {
	io.Reader
	raw syscall.RawConn
	own io.Closer // nil while the writing side has the same descriptor, and closes it
}

// returnOf gives the reading side of a non-blocking stream socket; nil for any other stream.
func returnOf(out io.WriteCloser) *returnPath {
	in, readable := out.(io.Reader)
	raw := nonBlocking(out)
	if !readable || raw == nil {
		return nil
	}
	stream := false
	err := raw.Control(func(fd uintptr) {
		kind, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TYPE)
		stream = err == nil && kind == unix.SOCK_STREAM
	})
	if err != nil || !stream {
		return nil
	}
	return &returnPath{Reader: in, raw: raw}
}

// shut ends a Read that waits, and tells the worker with EPIPE when it writes to the socket all the same. What it has written before
// can still be read on Linux.
func (p *returnPath) shut() {
	// It fails for a socket that is closed on either side, and then there is nothing left to end.
	_ = p.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RD) })
}

// Close gives the descriptor back, unless the writing side needs it. The second time it fails and does nothing.
func (p *returnPath) Close() error {
	if p.own == nil {
		return nil
	}
	return p.own.Close()
}
