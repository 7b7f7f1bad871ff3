package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// peer is the worker's end of a frames Conn, driven by the test.
type peer struct {
	t    testing.TB
	conn workerEnd
	r    *bufio.Reader
}

// workerEnd is the socket that a worker reads from, and the pipe that it writes to.
type workerEnd struct {
	*net.UnixConn
	out *os.File
}

func (e workerEnd) Write(data []byte) (int, error) { return e.out.Write(data) }

func (e workerEnd) Close() error { return errors.Join(e.UnixConn.Close(), e.out.Close()) }

// newPeer returns a Conn whose worker has said hello and read the host's.
func newPeer(t testing.TB, o Options) (*Conn, *peer) {
	c, p := newSilentPeer(t, o)
	p.write(Frame{Type: FrameHello, Payload: []byte(`{"protocol":1,"sdk":"test/1","methods":["m"]}`)})
	require.NoError(t, AwaitReady(within(t), c))
	return c, p
}

func newSilentPeer(t testing.TB, o Options) (*Conn, *peer) {
	ours, theirs := socketPair(t)
	far, err := net.FileConn(theirs)
	require.NoError(t, err)
	theirs.Close()
	answers, out, err := os.Pipe()
	require.NoError(t, err)
	c := NewFrames(answers, ours, o)
	require.ErrorIs(t, ours.SetDeadline(time.Time{}), net.ErrClosed, "it is not polled")
	p := &peer{t: t, conn: workerEnd{far.(*net.UnixConn), out}, r: bufio.NewReader(far)}
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		p.conn.Close()
	})
	hello := p.read()
	require.Equal(t, FrameHello, hello.Type)
	var said hostHello
	require.NoError(t, json.Unmarshal(hello.Payload, &said))
	filled := o.withDefaults()
	require.Equal(t, hostHello{Protocol: 1, MaxMessage: filled.MaxMessage, MaxInflight: filled.MaxInflight}, said)
	return c, p
}

func (p *peer) read() Frame {
	require.NoError(p.t, p.conn.SetReadDeadline(time.Now().Add(waitTimeout)))
	f, err := ReadFrame(p.r, DefaultMaxMessage)
	require.NoError(p.t, err)
	return f
}

func (p *peer) write(f Frame) {
	msg, err := AppendFrame(nil, f)
	require.NoError(p.t, err)
	require.NoError(p.t, errorOf(p.conn.Write(msg)))
}

func TestACallCarriesMethodHeadersAndPayload(t *testing.T) {
	c, p := newPeer(t, Options{})
	done := callAsync(context.Background(), c,
		Request{Method: "m", Headers: map[string]string{"traceparent": "t"}, Payload: []byte{0, 255}})
	asked := p.read()
	require.Equal(t, Frame{Type: FrameRequest, ID: asked.ID, Method: "m", Headers: map[string]string{"traceparent": "t"},
		Payload: []byte{0, 255}}, asked)
	require.Equal(t, 1, c.InFlight())
	p.write(Frame{Type: FrameResponse, ID: asked.ID, Headers: map[string]string{"a": "b"}, Payload: []byte("ok")})
	got := await(t, done)
	require.NoError(t, got.err)
	require.Equal(t, Response{Headers: map[string]string{"a": "b"}, Payload: []byte("ok")}, got.resp)
	require.Zero(t, c.InFlight())
}

func TestARequestCarriesTheRemainingTimeout(t *testing.T) {
	c, p := newPeer(t, Options{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	callAsync(ctx, c, Request{Method: "m", Headers: map[string]string{"k": "v"}})
	asked := p.read()
	require.Equal(t, "v", asked.Headers["k"])
	require.Regexp(t, `^3(600000|5\d{5})$`, asked.Headers["tempool-timeout"])
	p.write(Frame{Type: FrameResponse, ID: asked.ID})
	callAsync(ctx, c, Request{Method: "m", Headers: map[string]string{"tempool-timeout": "5"}})
	require.Equal(t, map[string]string{"tempool-timeout": "5"}, p.read().Headers, "the caller's own header wins")
}

func TestCallJoinsChunksUpToTheLimit(t *testing.T) {
	c, p := newPeer(t, Options{MaxMessage: 10})
	done := callAsync(context.Background(), c, Request{Method: "m"})
	id := p.read().ID
	p.write(Frame{Type: FrameChunk, ID: id, Payload: []byte("01234")})
	p.write(Frame{Type: FrameResponse, ID: id, Payload: []byte("56789")})
	requireAnswer(t, done, "0123456789")

	done = callAsync(context.Background(), c, Request{Method: "m"})
	id = p.read().ID
	for range 3 {
		p.write(Frame{Type: FrameChunk, ID: id, Payload: []byte("01234")})
	}
	require.ErrorIs(t, await(t, done).err, ErrTooLarge)
	require.Equal(t, FrameCancel, p.read().Type)
}

func TestAnErrorOfOnChunkCancelsTheStream(t *testing.T) {
	c, p := newPeer(t, Options{})
	full := errors.New("disk full")
	done := background(func() error {
		return errorOf(Prepare(context.Background(), Request{Method: "m"}, nil).Do(c,
			func([]byte, string) error { return full }))
	})
	id := p.read().ID
	p.write(Frame{Type: FrameChunk, ID: id})
	require.ErrorIs(t, await(t, done), full)
	require.Equal(t, Frame{Type: FrameCancel, ID: id, Payload: []byte{}}, p.read())
	for range 5 * waitingEvents { // what was on its way is dropped and delays nobody
		p.write(Frame{Type: FrameChunk, ID: id})
	}
	p.write(Frame{Type: FrameResponse, ID: id})
	require.Eventually(t, func() bool { return c.InFlight() == 0 }, waitTimeout, time.Millisecond)
}

func TestACancelledCallReturnsAtOnceAndStaysInFlight(t *testing.T) {
	c, p := newPeer(t, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	done := callAsync(ctx, c, Request{Method: "m"})
	id := p.read().ID
	cancel()
	err := await(t, done).err
	requireStarted(t, true, err)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, Frame{Type: FrameCancel, ID: id, Payload: []byte{}}, p.read())
	require.Equal(t, 1, c.InFlight())

	waiting, stop := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer stop()
	_, err = c.Call(waiting, Request{Method: "m"})
	requireStarted(t, false, err, "no place was free")
	require.ErrorIs(t, err, context.DeadlineExceeded)

	p.write(Frame{Type: FrameError, ID: id, Payload: []byte(`{"code":"cancelled","message":""}`)})
	next := callAsync(context.Background(), c, Request{Method: "next"})
	asked := p.read()
	require.Equal(t, "next", asked.Method)
	p.write(Frame{Type: FrameResponse, ID: asked.ID})
	require.NoError(t, await(t, next).err)
}

func TestConcurrentPingsShareOneMessage(t *testing.T) {
	c, p := newPeer(t, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	pinged := background(func() error { return c.Ping(ctx) })
	first := p.read()
	require.Equal(t, FramePing, first.Type)
	cancel()
	require.ErrorIs(t, await(t, pinged), context.Canceled)
	again := background(func() error { return c.Ping(within(t)) })
	p.write(Frame{Type: FramePong, ID: first.ID})
	// Either the late answer serves the second ping, or it came first and the second asks again.
	select {
	case err := <-again:
		require.NoError(t, err)
	case second := <-background(p.readQuietly):
		if second.Type == FramePing {
			require.Greater(t, second.ID, first.ID)
			p.write(Frame{Type: FramePong, ID: second.ID})
		}
		require.NoError(t, await(t, again))
	}
	require.NoError(t, c.Err(), "an unanswered ping breaks nothing")
	require.NoError(t, c.Close())
}

// readQuietly is read for a goroutine that may outlive the need for it: the end of the stream is not a failure.
func (p *peer) readQuietly() Frame {
	f, _ := ReadFrame(p.r, DefaultMaxMessage)
	return f
}

func TestOversizedRequestsAreNotSent(t *testing.T) {
	c, _ := newPeer(t, Options{MaxMessage: 4})
	for _, r := range []Request{
		{Method: "m", Payload: []byte("12345")},
		{Method: ""},
		{Method: strings.Repeat("m", MaxMethod+1)},
		{Method: "m", Headers: map[string]string{"k": strings.Repeat("v", MaxHeaders)}},
	} {
		_, err := c.Call(context.Background(), r)
		requireStarted(t, false, err)
		require.Error(t, c.Notify(context.Background(), r))
	}
	require.Zero(t, c.InFlight())
	require.NoError(t, c.Err())
}

func TestProtocolViolationsBreakAFramesConn(t *testing.T) {
	hello := Frame{Type: FrameHello, Payload: []byte(`{"protocol":1,"sdk":"","methods":[]}`)}
	for _, tc := range []struct {
		frames []Frame
		reason string
	}{
		{[]Frame{{Type: FrameResponse, ID: 1}}, "before the hello"},
		{[]Frame{{Type: FrameHello, Payload: []byte(`{"protocol":2}`)}}, "has protocol version 2"},
		{[]Frame{{Type: FrameHello, Payload: []byte(`hello`)}}, "an invalid hello"},
		{[]Frame{hello, hello}, "only once"},
		{[]Frame{hello, {Type: FrameResponse, ID: 1}}, "unsolicited"},
		{[]Frame{hello, {Type: FrameChunk, ID: 7}}, "unsolicited"},
		{[]Frame{hello, {Type: FramePong, ID: 7}}, "unsolicited"},
		{[]Frame{hello, {Type: FrameError, ID: 1, Payload: []byte(`{"message":"m"}`)}}, "unsolicited"},
		{[]Frame{hello, {Type: FrameError, ID: 1, Payload: []byte(`oops`)}}, "an invalid error frame"},
		{[]Frame{hello, {Type: FrameRequest, ID: 1, Method: "m"}}, "only the host"},
		{[]Frame{hello, {Type: FrameResponse, ID: 1, Payload: make([]byte, 101)}}, "the limit is 100"},
		{[]Frame{hello, {Type: FrameHostCall, ID: 1, Method: "\xff"}}, "UTF-8"},
	} {
		c, p := newSilentPeer(t, Options{MaxMessage: 100})
		for _, f := range tc.frames {
			p.write(f)
		}
		await(t, c.Done())
		var broken *ProtocolError
		require.ErrorAs(t, c.Err(), &broken, tc.reason)
		require.Contains(t, broken.Reason, tc.reason)
	}
}

func TestAResponseJustBeforeTheEndIsDelivered(t *testing.T) {
	for range 50 {
		c, p := newPeer(t, Options{})
		done := callAsync(context.Background(), c, Request{Method: "m"})
		p.write(Frame{Type: FrameResponse, ID: p.read().ID, Payload: []byte("last words")})
		require.NoError(t, p.conn.Close())
		requireAnswer(t, done, "last words")
	}
}

func TestACallToAWorkerThatClosedItsEndWasNotSent(t *testing.T) {
	c, p := newPeer(t, Options{})
	require.NoError(t, p.conn.CloseRead())
	_, err := c.Call(context.Background(), Request{Method: "m"})
	requireStarted(t, false, err, "so it is safe to send it elsewhere")
	require.ErrorIs(t, err, ErrPeerClosed)
	require.Zero(t, c.InFlight())
}

func TestAStuckWorkerBlocksNoCallBeyondItsContext(t *testing.T) {
	c, p := newPeer(t, Options{MaxInflight: 2, CancelGrace: time.Hour})
	big := bytes.Repeat([]byte("x"), 8<<20)
	ctx, cancel := context.WithCancel(context.Background())
	stuck := callAsync(ctx, c, Request{Method: "m", Payload: big})
	require.Eventually(t, func() bool { return c.out.backlogged() > 0 }, waitTimeout, time.Millisecond)
	cancel()
	require.ErrorIs(t, await(t, stuck).err, context.Canceled)
	require.ErrorIs(t, errorOf(c.Call(ctx, Request{Method: "never on the wire"})), context.Canceled)
	require.ErrorIs(t, c.Notify(ctx, Request{Method: "n"}), context.Canceled)

	// Once it reads again, everything is whole and in order.
	first := p.read()
	require.Equal(t, len(big), len(first.Payload))
	require.Equal(t, FrameCancel, p.read().Type)
	p.write(Frame{Type: FrameResponse, ID: first.ID})
	require.NoError(t, c.Notify(within(t), Request{Method: "n"}))
	require.Equal(t, FrameNotify, p.read().Type)

	stuck = callAsync(context.Background(), c, Request{Method: "m", Payload: big})
	require.Eventually(t, func() bool { return c.out.backlogged() > 0 }, waitTimeout, time.Millisecond)
	require.NoError(t, c.Close())
	err := await(t, stuck).err
	requireStarted(t, true, err)
	require.ErrorIs(t, err, ErrClosed)
}

func TestHostCallsGetTheHeadersOfTheirCallOnly(t *testing.T) {
	type asked struct {
		method  string
		headers map[string]string
		payload string
	}
	seen := make(chan asked, 1)
	c, p := newPeer(t, Options{HostCall: func(ctx context.Context, method string, headers map[string]string,
		payload []byte) ([]byte, error) {
		seen <- asked{method, headers, string(payload)}
		switch method {
		case "fail":
			return nil, errors.New("store is down")
		case "refuse":
			return nil, &RemoteError{Code: "session_not_found", Message: "gone"}
		}
		return []byte("result"), nil
	}})
	done := callAsync(context.Background(), c, Request{Method: "m", Headers: map[string]string{"tempool-session": "mine"}})
	call := p.read()
	inCall := map[string]string{"call": fmt.Sprint(call.ID), "tempool-session": "somebody else's"}

	p.write(Frame{Type: FrameHostCall, ID: 1, Method: "session.get", Headers: inCall, Payload: []byte("{}")})
	require.Equal(t, asked{"session.get", map[string]string{"tempool-session": "mine"}, "{}"}, await(t, seen))
	require.Equal(t, Frame{Type: FrameHostResult, ID: 1, Payload: []byte("result")}, p.read())

	p.write(Frame{Type: FrameHostCall, ID: 2, Method: "outside", Headers: map[string]string{"tempool-session": "stolen"}})
	require.Equal(t, asked{method: "outside"}, await(t, seen))
	require.Equal(t, uint32(2), p.read().ID)

	for i, tc := range []struct{ method, call, code, message string }{
		{"fail", inCall["call"], CodeHostError, "store is down"},
		{"refuse", inCall["call"], "session_not_found", "gone"},
		{"late", "12345", CodeNotInCall, "not in flight"},
		{"late", "many", CodeNotInCall, "not in flight"},
	} {
		p.write(Frame{Type: FrameHostCall, ID: uint32(10 + i), Method: tc.method,
			Headers: map[string]string{"call": tc.call}})
		if tc.method != "late" {
			await(t, seen)
		}
		answer := p.read()
		require.Equal(t, FrameHostError, answer.Type)
		require.Equal(t, uint32(10+i), answer.ID)
		var failure RemoteError
		require.NoError(t, json.Unmarshal(answer.Payload, &failure))
		require.Equal(t, tc.code, failure.Code)
		require.Contains(t, failure.Message, tc.message)
	}
	p.write(Frame{Type: FrameResponse, ID: call.ID})
	require.NoError(t, await(t, done).err)
}

func TestAHostCallEndsWithItsCallAndWithItsConn(t *testing.T) {
	began, ended := make(chan struct{}, MaxHostCalls+2), make(chan error, MaxHostCalls+2)
	c, p := newPeer(t, Options{HostCall: func(ctx context.Context, _ string, _ map[string]string,
		_ []byte) ([]byte, error) {
		began <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}})
	ctx, cancel := context.WithCancel(context.Background())
	done := callAsync(ctx, c, Request{Method: "m"})
	headers := map[string]string{"call": fmt.Sprint(p.read().ID)}
	p.write(Frame{Type: FrameHostCall, ID: 1, Method: "wait", Headers: headers})
	await(t, began)
	cancel()
	require.ErrorIs(t, await(t, ended), context.Canceled)
	await(t, done)
	for _, want := range []FrameType{FrameCancel, FrameHostError} { // in either order
		got := p.read().Type
		require.Contains(t, []FrameType{FrameCancel, FrameHostError}, got, want)
	}
	p.write(Frame{Type: FrameHostCall, ID: 2, Method: "wait", Headers: headers})
	var failure RemoteError
	require.NoError(t, json.Unmarshal(p.read().Payload, &failure))
	require.Equal(t, CodeCancelled, failure.Code)

	for i := range MaxHostCalls {
		p.write(Frame{Type: FrameHostCall, ID: uint32(100 + i), Method: "wait"})
		await(t, began)
	}
	p.write(Frame{Type: FrameHostCall, ID: 3, Method: "wait"})
	require.NoError(t, json.Unmarshal(p.read().Payload, &failure))
	require.Equal(t, CodeBusy, failure.Code)
	require.NoError(t, c.Close())
	for range MaxHostCalls {
		require.ErrorIs(t, await(t, ended), context.Canceled)
	}
}

func TestCountersAddUp(t *testing.T) {
	c, p := newPeer(t, Options{})
	require.Nil(t, CountsOf(c))
	call := func(answer Frame) outcome {
		done := callAsync(within(t), c, Request{Method: "m"})
		answer.ID = p.read().ID
		p.write(answer)
		return await(t, done)
	}
	got := call(Frame{Type: FrameResponse, Headers: map[string]string{"tempool-count-api_calls": "3", "other": "header"}})
	require.NoError(t, got.err)
	require.Equal(t, "3", got.resp.Headers["tempool-count-api_calls"])
	require.Equal(t, map[string]int64{"api_calls": 3}, CountsOf(c))
	got = call(Frame{Type: FrameError, Payload: []byte(`{"message":"no"}`),
		Headers: map[string]string{"tempool-count-api_calls": "2", "tempool-count-tokens": "0"}})
	require.Error(t, got.err)
	require.Equal(t, map[string]int64{"api_calls": 5, "tokens": 0}, CountsOf(c))

	ask := func(payload string) Frame {
		p.write(Frame{Type: FrameHostCall, ID: 1, Method: CountMethod, Payload: []byte(payload)})
		return p.read()
	}
	require.Equal(t, FrameHostResult, ask(`{"tokens":7}`).Type)
	for _, bad := range []string{``, `[]`, `{"tokens":-1}`, `{"Tokens":1}`, `{"tokens":1,"":1}`, `{"tokens":1.5}`,
		`{"tokens":"1"}`} {
		answer := ask(bad)
		require.Equal(t, FrameHostError, answer.Type, bad)
		require.Contains(t, string(answer.Payload), CodeInvalidParams, bad)
	}
	require.Equal(t, map[string]int64{"api_calls": 5, "tokens": 7}, CountsOf(c))

	many := map[string]int64{}
	for i := range 100 {
		many[fmt.Sprintf("n%d", i)] = 2
	}
	payload, err := json.Marshal(many)
	require.NoError(t, err)
	require.Equal(t, FrameHostResult, ask(string(payload)).Type)
	counts, sum := CountsOf(c), int64(0)
	for _, n := range counts {
		sum += n
	}
	require.Len(t, counts, MaxCounters)
	require.EqualValues(t, 12+200, sum, "nothing is lost")
	require.EqualValues(t, 2*(100-(MaxCounters-3)), counts[OtherCounter])
	require.NoError(t, c.Close())
	require.Equal(t, counts, CountsOf(c), "counters stay readable after the end")
}

func TestAnInvalidCountIsAViolation(t *testing.T) {
	for name, value := range map[string]string{"x": "-1", "y": "1.5", "z": "", "A": "1", "": "1",
		"huge": "9999999999999999"} {
		c, p := newPeer(t, Options{})
		callAsync(context.Background(), c, Request{Method: "m"})
		p.write(Frame{Type: FrameResponse, ID: p.read().ID, Headers: map[string]string{CountHeader + name: value}})
		await(t, c.Done())
		require.ErrorContains(t, c.Err(), "a counter's name has")
	}
}

func TestHostCallsWithoutAHandlerAreUnsupported(t *testing.T) {
	_, p := newPeer(t, Options{})
	p.write(Frame{Type: FrameHostCall, ID: 1, Method: "session.get"})
	answer := p.read()
	require.Equal(t, FrameHostError, answer.Type)
	require.Contains(t, string(answer.Payload), `"code":"unsupported"`)
}

func FuzzFrames(f *testing.F) {
	for _, v := range vectors[goodVector](f, "frames.json") {
		f.Add(unhex(f, v.Hex))
	}
	for _, v := range vectors[malformedVector](f, "malformed.json") {
		f.Add(unhex(f, v.Hex))
	}
	hello, err := AppendFrame(nil, Frame{Type: FrameHello, Payload: []byte(`{"protocol":1}`)})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if frame, err := ReadFrame(reader(raw), 1<<16); err == nil {
			again, err := AppendFrame(nil, frame)
			require.NoError(t, err)
			back, err := ReadFrame(reader(again), 1<<16)
			require.NoError(t, err)
			require.Equal(t, frame, back)
		}
		ours, theirs := net.Pipe()
		c := NewFrames(ours, struct{ io.WriteCloser }{ours},
			Options{MaxMessage: 1 << 16, HostCall: func(context.Context, string, map[string]string, []byte) ([]byte, error) {
				return nil, os.ErrInvalid
			}})
		done := callAsync(within(t), c, Request{Method: "m"})
		var peer sync.WaitGroup
		peer.Go(func() { io.Copy(io.Discard, theirs) })
		peer.Go(func() {
			theirs.Write(hello)
			theirs.Write(raw)
			theirs.Close()
		})
		await(t, c.Done())
		await(t, done)
		require.Error(t, c.Err())
		require.NoError(t, c.Close())
		peer.Wait()
	})
}

func TestAnUnansweredCancelBreaksTheConn(t *testing.T) {
	c, p := newPeer(t, Options{CancelGrace: 10 * time.Millisecond, MaxInflight: 2})
	other := callAsync(context.Background(), c, Request{Method: "other"})
	p.read()
	ctx, cancel := context.WithCancel(context.Background())
	done := callAsync(ctx, c, Request{Method: "m"})
	p.read()
	cancel()
	await(t, done)
	await(t, c.Done())
	require.ErrorIs(t, c.Err(), ErrUnanswered)
	require.ErrorIs(t, await(t, other).err, ErrUnanswered, "all other calls fail, too")
}
