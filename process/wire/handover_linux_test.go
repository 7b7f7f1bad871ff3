package wire

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAHandOverWaitsForTheCallInFlightAndGoesOnElsewhere(t *testing.T) {
	c, p := newPeer(t, Options{})
	first := callAsync(context.Background(), c, Request{Method: "m"})
	request := p.read()
	type handed struct {
		state   State
		in, out *os.File
		err     error
	}
	over := background(func() (h handed) {
		h.state, h.in, h.out, h.err = HandOver(t.Context(), c)
		return h
	})
	require.Eventually(t, func() bool { return c.refusal() != nil }, time.Minute, time.Millisecond, "nothing new is sent")
	require.Empty(t, over, "a call is in flight")
	p.write(Frame{Type: FrameResponse, ID: request.ID, Headers: map[string]string{CountHeader + "pages": "3"},
		Payload: []byte("one")})
	requireAnswer(t, first, "one")
	h := <-over
	require.NoError(t, h.err)
	require.ErrorIs(t, c.Err(), ErrHandedOver)
	require.ErrorIs(t, errorOf(c.Call(t.Context(), Request{Method: "m"})), ErrHandedOver)

	// while nobody reads
	p.write(Frame{Type: FrameHostCall, ID: 7, Method: CountMethod, Payload: []byte(`{"pages":2}`)})
	next, err := ResumeFrames(h.in, h.out, h.state, Options{})
	require.NoError(t, err)
	defer next.Close()
	require.Equal(t, FrameHostResult, p.read().Type, "the first frame of the next host; no second hello")
	second := callAsync(context.Background(), next, Request{Method: "m"})
	asked := p.read()
	require.Greater(t, asked.ID, request.ID, "no id is used twice")
	p.write(Frame{Type: FrameResponse, ID: asked.ID, Payload: []byte("two")})
	requireAnswer(t, second, "two")
	require.Equal(t, map[string]int64{"pages": 5}, CountsOf(next))
	_, known := HelloOf(next)
	require.True(t, known)
}

func TestAHandOverFailsInTheMiddleOfAMessage(t *testing.T) {
	c, p := newPeer(t, Options{})
	data, err := AppendFrame(nil, Frame{Type: FrameHostCall, ID: 1, Method: CountMethod, Payload: []byte(`{"pages":2}`)})
	require.NoError(t, err)
	require.NoError(t, errorOf(p.conn.Write(data[:len(data)-1])))
	in := c.in.(*os.File)
	require.Eventually(t, func() bool { return unread(t, in) == 0 }, time.Minute, time.Millisecond,
		"the host reads what there is")
	_, _, _, err = HandOver(t.Context(), c)
	require.ErrorIs(t, err, errMidMessage)
}

func TestAHandOverOfABusyWorkerEndsWithItsContext(t *testing.T) {
	c, p := newPeer(t, Options{})
	pending := callAsync(context.Background(), c, Request{Method: "m"})
	p.read()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, _, _, err := HandOver(ctx, c)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, c.Close())
	require.Error(t, await(t, pending).err)
}

// A process that is frozen, or hangs, answers no ping.
func TestAHandOverDoesNotWaitForAPong(t *testing.T) {
	c, p := newPeer(t, Options{})
	before := background(func() error { return c.Ping(t.Context()) })
	ping := p.read()
	require.Equal(t, FramePing, ping.Type)
	state, in, out, err := HandOver(within(t), c)
	require.NoError(t, err)
	require.ErrorIs(t, await(t, before), ErrHandedOver)

	next, err := ResumeFrames(in, out, state, Options{})
	require.NoError(t, err)
	defer next.Close()
	p.write(Frame{Type: FramePong, ID: ping.ID})
	answered := callAsync(context.Background(), next, Request{Method: "m"})
	p.write(Frame{Type: FrameResponse, ID: p.read().ID})
	require.NoError(t, await(t, answered).err, "the pong is no error")
	after := background(func() error { return next.Ping(t.Context()) })
	p.write(Frame{Type: FramePong, ID: p.read().ID})
	require.NoError(t, await(t, after))
}

// unread is how many bytes wait in a pipe.
func unread(t *testing.T, pipe *os.File) (n int) {
	t.Helper()
	raw, err := pipe.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }))
	require.NoError(t, err)
	return n
}
