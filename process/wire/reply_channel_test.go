package wire

import (
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var workerHello = Frame{Type: FrameHello, Payload: []byte(`{"protocol":1,"sdk":"test/1"}`)}

// forked is a worker that was given both descriptors, driven by the test.
type forked struct {
	host   *peer // what it reads
	socket *net.UnixConn
	pipe   *os.File
	ours   net.Conn // the host's end of the socket, as NewFrames was given it
}

func newForked(t testing.TB) (*Conn, forked) {
	ours, theirs := socketPair(t)
	far, err := net.FileConn(theirs)
	require.NoError(t, err)
	require.NoError(t, theirs.Close())
	answers, out, err := os.Pipe()
	require.NoError(t, err)
	c, err := NewFrames(answers, ours, Options{MaxInflight: 2})
	require.NoError(t, err)
	f := forked{&peer{t: t, conn: far, r: newFrameReader(far, DefaultMaxMessage)}, far.(*net.UnixConn), out, ours}
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		far.Close()
		out.Close()
	})
	require.Equal(t, FrameHello, f.host.read().Type)
	return c, f
}

// send writes a frame to either descriptor.
func send(t *testing.T, to io.Writer, f Frame) {
	t.Helper()
	msg, err := AppendFrame(nil, f)
	require.NoError(t, err)
	require.NoError(t, errorOf(to.Write(msg)))
}

// closeWriting ends what the worker sends by the socket, and leaves it open for what it reads.
func (f forked) closeWriting() { require.NoError(f.host.t, f.socket.CloseWrite()) }

// serves checks that a call goes to the socket, and its answer comes back from there or from the pipe.
func serves(t *testing.T, c *Conn, f forked, answers io.Writer) {
	t.Helper()
	for range 3 {
		done := callAsync(within(t), c, Request{Method: "m", Payload: []byte("in")})
		asked := f.host.read()
		require.Equal(t, "in", string(asked.Payload))
		send(t, answers, Frame{Type: FrameResponse, ID: asked.ID, Payload: []byte("out")})
		requireAnswer(t, done, "out")
	}
}

// stays checks that the Conn is neither ready nor broken.
func stays(t *testing.T, c *Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, AwaitReady(ctx, c), context.DeadlineExceeded)
	_, said := HelloOf(c)
	require.False(t, said)
}

func TestTheHelloChoosesTheReplyChannel(t *testing.T) {
	for _, test := range []struct {
		name   string
		before func(f forked)           // what the worker does before its hello
		hello  func(f forked) io.Writer // where it says it
		after  func(f forked)
	}{
		{"by the pipe", nil, func(f forked) io.Writer { return f.pipe }, nil},
		{"by the pipe, with its sending side of the socket closed", forked.closeWriting,
			func(f forked) io.Writer { return f.pipe }, nil},
		{"by the pipe, and its sending side of the socket is closed later", nil, func(f forked) io.Writer { return f.pipe },
			forked.closeWriting},
		{"by the socket", nil, func(f forked) io.Writer { return f.socket }, nil},
		{"by the socket, with its pipe closed", func(f forked) { f.pipe.Close() },
			func(f forked) io.Writer { return f.socket }, nil},
		{"by the socket, and its pipe is closed later", nil, func(f forked) io.Writer { return f.socket },
			func(f forked) { f.pipe.Close() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, f := newForked(t)
			if test.before != nil {
				test.before(f)
				stays(t, c)
			}
			answers := test.hello(f)
			send(t, answers, workerHello)
			require.NoError(t, AwaitReady(within(t), c))
			serves(t, c, f, answers)
			if test.after != nil {
				test.after(f)
				serves(t, c, f, answers)
			}
			require.NoError(t, c.Err())
		})
	}
}

func TestWritingToBothReplyChannelsIsAViolation(t *testing.T) {
	for _, test := range []struct {
		name   string
		do     func(c *Conn, f forked)
		reason string
	}{
		{"first the socket, then the pipe", func(c *Conn, f forked) {
			send(t, f.socket, workerHello)
			require.NoError(t, AwaitReady(within(t), c))
			send(t, f.pipe, workerHello)
		}, "bytes on the pipe (TEMPOOL_OUT) from a worker that writes its frames to the socket (TEMPOOL_FD)"},
		{"both at once", func(_ *Conn, f forked) {
			send(t, f.socket, workerHello)
			send(t, f.pipe, workerHello) // the host may see this one first
		}, "write all frames to one of the two"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range 20 {
				c, f := newForked(t)
				test.do(c, f)
				await(t, c.Done())
				var broken *ProtocolError
				require.ErrorAs(t, c.Err(), &broken)
				require.ErrorContains(t, c.Err(), test.reason)
			}
		})
	}
}

func TestTheEndOfTheReplyChannelEndsTheConn(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(c *Conn, f forked)
	}{
		{"the pipe", func(c *Conn, f forked) {
			send(t, f.pipe, workerHello)
			require.NoError(t, AwaitReady(within(t), c))
			f.pipe.Close()
		}},
		{"the socket, with the pipe open", func(c *Conn, f forked) {
			send(t, f.socket, workerHello)
			require.NoError(t, AwaitReady(within(t), c))
			f.socket.Close()
		}},
		{"both before the hello", func(_ *Conn, f forked) {
			f.pipe.Close()
			f.socket.Close()
		}},
		{"both before the hello, the socket first", func(_ *Conn, f forked) {
			f.socket.Close()
			f.pipe.Close()
		}},
		{"the socket in the middle of its hello", func(_ *Conn, f forked) {
			require.NoError(t, errorOf(f.socket.Write([]byte{0, 0})))
			f.socket.Close()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, f := newForked(t)
			test.do(c, f)
			await(t, c.Done())
			require.ErrorIs(t, c.Err(), ErrPeerClosed)
		})
	}
}

func TestCloseBeforeTheHelloStopsAllReaders(t *testing.T) {
	c, f := newForked(t)
	stays(t, c)
	require.NoError(t, c.Close()) // waits for both readers
	require.ErrorIs(t, c.Err(), ErrClosed)
	require.ErrorIs(t, errorOf(f.socket.Read(make([]byte, 1))), io.EOF)
}

func TestEverySDKPrefersThePipe(t *testing.T) {
	eachSDK(t, func(t *testing.T, s sdk) {
		c, _ := s.start(t, Options{})
		require.Equal(t, replyPipe, framesOf(c).reply.current())
		c, _ = s.start(t, Options{}, "TEMPOOL_OUT=none")
		require.Equal(t, replySocket, framesOf(c).reply.current())
		for range 3 {
			resp, err := c.Call(within(t), Request{Method: "square", Payload: []byte(`{"x":12}`)})
			require.NoError(t, err)
			require.Equal(t, "144", string(resp.Payload))
		}
	})
}
