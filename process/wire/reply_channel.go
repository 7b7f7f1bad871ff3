package wire

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// replyChannel is which of its two descriptors a worker writes its frames to.
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

// replyChoice is the channel of the worker's first bytes, which the worker must not change.
type replyChoice struct{ chosen atomic.Int32 }

func (s *replyChoice) current() replyChannel { return replyChannel(s.chosen.Load()) }

// choose chooses r if there is no choice yet, and reports whether r is the choice.
func (s *replyChoice) choose(r replyChannel) bool {
	return s.chosen.CompareAndSwap(int32(replyUndecided), int32(r)) || s.current() == r
}

// readResult is how reading one channel ended.
type readResult struct {
	err error
	// final is false if nothing was read: the worker may have closed a channel that it does not use.
	final bool
}

// readBoth reads both channels until the worker chooses one, and that one until its end.
func (d *frames) readBoth(c *Conn) error {
	socket := make(chan readResult, 1)
	c.goroutines.Go(func() {
		result := d.readChannel(c, replySocket, d.socket)
		if !errors.Is(result.err, os.ErrDeadlineExceeded) { // or HandOver duplicates it
			d.socket.Close()
		}
		if result.final {
			c.ended(result.err) // the pipe's reader blocks until the Conn ends
		}
		socket <- result
	})
	if result := d.readChannel(c, replyPipe, d.in); result.final {
		return result.err
	}
	return (<-socket).err
}

// readChannel waits for the first bytes of a channel, and reads on if that chooses it.
func (d *frames) readChannel(c *Conn, channel replyChannel, in io.Reader) readResult {
	r := newFrameReader(in, d.max)
	_, err := r.Peek(1)
	switch {
	case err != nil:
		return readResult{err, false}
	case !d.reply.choose(channel):
		return readResult{violation("bytes on %v from a worker that writes its frames to %v; write all frames to one of "+
			"the two", channel, d.reply.current()), true}
	case channel == replyPipe:
		d.socket.shutdownRead()
	}
	return readResult{d.readFrames(c, r), true}
}

// socketReader is the reading side of a socket whose writing side is another object.
type socketReader struct {
	io.Reader
	raw    syscall.RawConn
	closer io.Closer // nil if the writing side has the same descriptor and closes it
}

// newSocketReader returns the reading side of a non-blocking stream socket; nil for any other stream.
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

// shutdownRead unblocks Read, and makes further writes of the worker to the socket fail with EPIPE. On Linux, bytes
// written before can still be read.
func (p *socketReader) shutdownRead() {
	// Errors only mean that the socket is closed on either side.
	_ = p.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RD) })
}

// Close closes the descriptor, unless the writing side does. A second Close fails and does nothing.
func (p *socketReader) Close() error {
	if p.closer == nil {
		return nil
	}
	return p.closer.Close()
}
