package wire

import (
	"io"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// replyChannel is by which of its two descriptors a worker sends its frames.
type replyChannel int32

const (
	replyUndecided replyChannel = iota
	replyPipe
	replySocket
)

func (r replyChannel) String() string {
	if r == replySocket {
		return "the socket (TEMPOOL_FD)"
	}
	return "the pipe (TEMPOOL_OUT)"
}

// ways keeps to one way: the one by which the worker's first bytes came.
type replyChoice struct{ chosen atomic.Int32 }

func (s *replyChoice) current() replyChannel { return replyChannel(s.chosen.Load()) }

// choose reports whether w is the way, which it becomes if there is none yet.
func (s *replyChoice) choose(r replyChannel) bool {
	return s.chosen.CompareAndSwap(int32(replyUndecided), int32(r)) || s.current() == r
}

// readResult is how the reading of one way ended.
type readResult struct {
	err error
	// final is false if nothing came by this way: the worker may have closed what it does not know, and speaks by the other one.
	final bool
}

// readBoth reads the way that the worker chooses until its end. Once that is the pipe, nobody reads the socket.
func (d *frames) readBoth(c *conn) error {
	socket := make(chan readResult, 1)
	c.goroutines.Go(func() {
		s := d.readChannel(c, replySocket, d.socket, newFrameReader(d.reader.maxPayload))
		d.socket.Close()
		if s.final {
			c.fail(s.err) // not by the channel alone: the pipe's reader sleeps until the Conn ends
		}
		socket <- s
	})
	if s := d.readChannel(c, replyPipe, d.in, d.reader); s.final {
		return s.err
	}
	return (<-socket).err
}

// readChannel waits for the first bytes of a way, and reads on if they choose it.
func (d *frames) readChannel(c *conn, channel replyChannel, in io.Reader, r *frameReader) readResult {
	defer r.release()
	for {
		n, err := in.Read(r.space())
		r.filled(n)
		switch {
		case n > 0 && !d.reply.choose(channel):
			return readResult{violation("bytes came by %v from a worker that writes its frames to %v: write them all to one of the two", channel, d.reply.current()), true}
		case n > 0:
			if channel == replyPipe {
				d.socket.shutdownRead()
			}
			return readResult{d.readFrames(c, in, r), true}
		case err != nil:
			return readResult{err, false}
		}
	}
}

// socketReader is the reading side of a socket that is written elsewhere.
type socketReader struct {
	io.Reader
	raw    syscall.RawConn
	closer io.Closer // nil while the writing side has the same descriptor, and closes it
}

// newSocketReader gives the reading side of a non-blocking stream socket; nil for any other stream.
func newSocketReader(out io.WriteCloser) *socketReader {
	in, readable := out.(io.Reader)
	raw := rawNonBlocking(out)
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
	return &socketReader{Reader: in, raw: raw}
}

// shutdownRead ends a Read that waits, and tells the worker with EPIPE when it writes to the socket all the same. What it has written before
// can still be read on Linux.
func (p *socketReader) shutdownRead() {
	// It fails for a socket that is closed on either side, and then there is nothing left to end.
	_ = p.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RD) })
}

// Close gives the descriptor back, unless the writing side needs it. The second time it fails and does nothing.
func (p *socketReader) Close() error {
	if p.closer == nil {
		return nil
	}
	return p.closer.Close()
}
