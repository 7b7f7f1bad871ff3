package wire

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// frameWorker is the worker's side of two pipes with which a host speaks frames.
type frameWorker struct {
	in, out *os.File
}

func newFrameWorker(t *testing.T, o Options) (frameWorker, *Conn) {
	t.Helper()
	fromWorker, out, err := os.Pipe()
	require.NoError(t, err)
	in, toWorker, err := os.Pipe()
	require.NoError(t, err)
	c, err := NewFrames(fromWorker, toWorker, o)
	require.NoError(t, err)
	w := frameWorker{in, out}
	t.Cleanup(func() {
		in.Close()
		out.Close()
		_ = c.Close()
	})
	require.Equal(t, FrameHello, w.read(t).Type)
	w.write(t, Frame{Type: FrameHello, Payload: []byte(`{"protocol":1}`)})
	require.NoError(t, AwaitReady(t.Context(), c))
	return w, c
}

func (w frameWorker) read(t *testing.T) Frame {
	t.Helper()
	f, err := ReadFrame(w.in, DefaultMaxMessage)
	require.NoError(t, err)
	return f
}

func (w frameWorker) write(t *testing.T, f Frame) {
	t.Helper()
	data, err := AppendFrame(nil, f)
	require.NoError(t, err)
	require.NoError(t, errorOf(w.out.Write(data)))
}

// answer answers one request with its payload and returns its id.
func (w frameWorker) answer(t *testing.T, headers map[string]string) uint32 {
	t.Helper()
	f := w.read(t)
	require.Equal(t, FrameRequest, f.Type)
	w.write(t, Frame{Type: FrameResponse, ID: f.ID, Headers: headers, Payload: f.Payload})
	return f.ID
}

func called(t *testing.T, c *Conn, payload string) <-chan error {
	result := make(chan error, 1)
	go func() {
		r, err := c.Call(context.Background(), Request{Method: "m", Payload: []byte(payload)})
		if err == nil && string(r.Payload) != payload {
			err = io.ErrUnexpectedEOF
		}
		result <- err
	}()
	return result
}

func TestAHandOverWaitsForTheCallInFlightAndGoesOnElsewhere(t *testing.T) {
	w, c := newFrameWorker(t, Options{})
	first := called(t, c, "one")
	request := w.read(t)
	type handed struct {
		state   State
		in, out *os.File
		err     error
	}
	over := make(chan handed, 1)
	go func() {
		var h handed
		h.state, h.in, h.out, h.err = HandOver(t.Context(), c)
		over <- h
	}()
	require.Eventually(t, func() bool { return c.refusal() != nil }, time.Minute, time.Millisecond, "nothing new is sent")
	require.Empty(t, over, "a call is in flight")
	w.write(t, Frame{Type: FrameResponse, ID: request.ID, Headers: map[string]string{CountHeader + "pages": "3"},
		Payload: request.Payload})
	require.NoError(t, <-first)
	h := <-over
	require.NoError(t, h.err)
	require.ErrorIs(t, c.Err(), ErrHandedOver)
	require.ErrorIs(t, errorOf(c.Call(t.Context(), Request{Method: "m"})), ErrHandedOver)

	// while nobody reads
	w.write(t, Frame{Type: FrameHostCall, ID: 7, Method: CountMethod, Payload: []byte(`{"pages":2}`)})
	next, err := ResumeFrames(h.in, h.out, h.state, Options{})
	require.NoError(t, err)
	defer next.Close()
	require.Equal(t, FrameHostResult, w.read(t).Type, "the first frame of the next host; no second hello")
	second := called(t, next, "two")
	require.Greater(t, w.answer(t, nil), request.ID, "no id is used twice")
	require.NoError(t, <-second)
	require.Equal(t, map[string]int64{"pages": 5}, CountsOf(next))
	_, known := HelloOf(next)
	require.True(t, known)
}

func TestAHandOverFailsInTheMiddleOfAMessage(t *testing.T) {
	w, c := newFrameWorker(t, Options{})
	data, err := AppendFrame(nil, Frame{Type: FrameHostCall, ID: 1, Method: CountMethod, Payload: []byte(`{"pages":2}`)})
	require.NoError(t, err)
	require.NoError(t, errorOf(w.out.Write(data[:len(data)-1])))
	in := framesOf(c).in.(*os.File)
	require.Eventually(t, func() bool { return unread(t, in) == 0 }, time.Minute, time.Millisecond,
		"the host reads what there is")
	_, _, _, err = HandOver(t.Context(), c)
	require.ErrorIs(t, err, errMidMessage)
}

func TestAHandOverOfABusyWorkerEndsWithItsContext(t *testing.T) {
	w, c := newFrameWorker(t, Options{})
	pending := called(t, c, "one")
	w.read(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, _, _, err := HandOver(ctx, c)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, c.Close())
	require.Error(t, <-pending)
}

// A process that is frozen, or hangs, answers no ping.
func TestAHandOverDoesNotWaitForAPong(t *testing.T) {
	w, c := newFrameWorker(t, Options{})
	before := make(chan error, 1)
	go func() { before <- c.Ping(t.Context()) }()
	ping := w.read(t)
	require.Equal(t, FramePing, ping.Type)
	state, in, out, err := HandOver(within(t), c)
	require.NoError(t, err)
	require.ErrorIs(t, await(t, before), ErrHandedOver)

	next, err := ResumeFrames(in, out, state, Options{})
	require.NoError(t, err)
	defer next.Close()
	w.write(t, Frame{Type: FramePong, ID: ping.ID})
	after := make(chan error, 1)
	answered := called(t, next, "one")
	w.answer(t, nil)
	require.NoError(t, await(t, answered), "the pong is no error")
	go func() { after <- next.Ping(t.Context()) }()
	w.write(t, Frame{Type: FramePong, ID: w.read(t).ID})
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
