package wire

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// observed is an Observer that records.
type observed struct{ began, answered chan struct{} }

func observe() observed { return observed{make(chan struct{}, 1), make(chan struct{}, 1)} }

func (o observed) Answered(error) { o.answered <- struct{}{} }
func (o observed) Began()         { o.began <- struct{}{} }

// newSerialPeer returns a Conn whose worker has said that it is serial.
func newSerialPeer(t testing.TB, o Options) (*Conn, *peer) {
	c, p := newSilentPeer(t, o)
	p.write(Frame{Type: FrameHello, Payload: []byte(`{"protocol":1,"sdk":"test/1","methods":["m"],"serial":true}`)})
	require.NoError(t, AwaitReady(within(t), c))
	return c, p
}

// twoCalls returns a call that the worker has and one that was sent ahead, with the requests.
func twoCalls(t *testing.T, c *Conn, p *peer, ctx context.Context) (front, ahead *Exchange, asked [2]Frame, seen observed) {
	t.Helper()
	front = Prepare(within(t), Request{Method: "m", Payload: []byte("front")}, nil)
	require.True(t, front.Begin(c))
	seen = observe()
	ahead = Prepare(ctx, Request{Method: "m", Payload: []byte("ahead")}, seen)
	require.True(t, ahead.BeginAhead(c))
	asked = [2]Frame{p.read(), p.read()}
	require.Equal(t, "front", string(asked[0].Payload))
	require.Equal(t, "ahead", string(asked[1].Payload))
	require.Equal(t, 2, c.InFlight())
	return front, ahead, asked, seen
}

func TestACallSentAheadBeginsWhenTheCallBeforeIsAnswered(t *testing.T) {
	c, p := newSerialPeer(t, Options{})
	front, ahead, asked, seen := twoCalls(t, c, p, within(t))
	fronts, aheads := doAsync(front, c), doAsync(ahead, c)
	require.Empty(t, seen.began)
	p.write(Frame{Type: FrameResponse, ID: asked[0].ID, Payload: []byte("one")})
	await(t, seen.began)
	require.Equal(t, "one", string(await(t, fronts).resp.Payload))
	third := Prepare(within(t), Request{Method: "m"}, nil)
	require.True(t, third.BeginAhead(c), "the worker has come to the call before")
	last := p.read()
	p.write(Frame{Type: FrameResponse, ID: asked[1].ID, Payload: []byte("two")})
	require.Equal(t, "two", string(await(t, aheads).resp.Payload))
	await(t, seen.answered)
	thirds := doAsync(third, c)
	p.write(Frame{Type: FrameResponse, ID: last.ID})
	require.NoError(t, await(t, thirds).err)
	require.Zero(t, c.InFlight())
}

func TestOnlyOneCallIsSentAheadAndOnlyToASerialWorker(t *testing.T) {
	other, p := newPeer(t, Options{})
	busy := callAsync(within(t), other, Request{Method: "m"})
	asked := p.read()
	require.False(t, Prepare(within(t), Request{Method: "m"}, nil).BeginAhead(other), "it has not said that it is serial")
	p.write(Frame{Type: FrameResponse, ID: asked.ID})
	require.NoError(t, await(t, busy).err)

	many, p := newSerialPeer(t, Options{MaxInflight: 2})
	busy = callAsync(within(t), many, Request{Method: "m"})
	asked = p.read()
	require.False(t, Prepare(within(t), Request{Method: "m"}, nil).BeginAhead(many), "max_inflight is 2")
	p.write(Frame{Type: FrameResponse, ID: asked.ID})
	require.NoError(t, await(t, busy).err)

	c, p := newSerialPeer(t, Options{})
	require.False(t, Prepare(within(t), Request{Method: "m"}, nil).BeginAhead(c), "the worker is idle")
	front, ahead, requests, _ := twoCalls(t, c, p, within(t))
	require.False(t, Prepare(within(t), Request{Method: "m"}, nil).BeginAhead(c), "one is ahead")
	require.False(t, Prepare(within(t), Request{Method: "m"}, nil).Begin(c))
	waiting := callAsync(within(t), c, Request{Method: "m", Payload: []byte("waiting")})
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.waiting.first != nil
	}, waitTimeout, time.Millisecond)
	p.write(Frame{Type: FrameResponse, ID: requests[0].ID})
	require.NoError(t, await(t, doAsync(front, c)).err)
	require.False(t, Prepare(within(t), Request{Method: "m"}, nil).BeginAhead(c), "another call waits for its turn")
	p.write(Frame{Type: FrameResponse, ID: requests[1].ID})
	require.NoError(t, await(t, doAsync(ahead, c)).err)
	last := p.read()
	require.Equal(t, "waiting", string(last.Payload))
	p.write(Frame{Type: FrameResponse, ID: last.ID})
	require.NoError(t, await(t, waiting).err)
}

func TestACallSentAheadHasNotStartedIfTheWorkerEndsBefore(t *testing.T) {
	for name, answered := range map[string]bool{"the call before is not answered": false, "the call before is answered": true} {
		t.Run(name, func(t *testing.T) {
			c, p := newSerialPeer(t, Options{})
			front, ahead, asked, _ := twoCalls(t, c, p, within(t))
			if answered {
				p.write(Frame{Type: FrameResponse, ID: asked[0].ID})
			}
			require.NoError(t, p.conn.Close()) // with or without the answer read
			fronts, aheads := await(t, doAsync(front, c)), await(t, doAsync(ahead, c))
			var failed *CallError
			require.ErrorAs(t, aheads.err, &failed)
			require.Equal(t, answered, failed.Started)
			if answered {
				require.NoError(t, fronts.err)
				return
			}
			require.ErrorAs(t, fronts.err, &failed)
			require.True(t, failed.Started)
		})
	}
}

func TestACancelledCallAheadHasItsGraceAfterTheCallBefore(t *testing.T) {
	c, p := newSerialPeer(t, Options{CancelGrace: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	front, ahead, asked, seen := twoCalls(t, c, p, ctx)
	cancel()
	_, err := ahead.Do(c, Event{}, nil)
	var failed *CallError
	require.ErrorAs(t, err, &failed)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, failed.Started, "the worker may come to it before it reads the cancel")
	require.Equal(t, Frame{Type: FrameCancel, ID: asked[1].ID, Payload: []byte{}}, p.read())
	c.mu.Lock()
	require.Nil(t, c.ahead.cancelTimer, "the worker serves the call before")
	c.mu.Unlock()
	p.write(Frame{Type: FrameResponse, ID: asked[0].ID})
	require.NoError(t, await(t, doAsync(front, c)).err)
	await(t, c.Done())
	require.ErrorIs(t, c.Err(), ErrUnanswered)
	require.Empty(t, seen.began)
}

func TestACancelledCallAheadMayBeAnsweredBeforeTheCallInFront(t *testing.T) {
	c, p := newSerialPeer(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	front, ahead, asked, _ := twoCalls(t, c, p, ctx)
	cancel()
	_, err := ahead.Do(c, Event{}, nil)
	require.ErrorIs(t, err, context.Canceled)
	p.read()
	p.write(Frame{Type: FrameError, ID: asked[1].ID, Payload: []byte(`{"code":"cancelled"}`)})
	require.Eventually(t, func() bool { return c.InFlight() == 1 }, waitTimeout, time.Millisecond)
	next := Prepare(within(t), Request{Method: "m"}, nil)
	require.True(t, next.BeginAhead(c))
	p.write(Frame{Type: FrameResponse, ID: asked[0].ID})
	require.NoError(t, await(t, doAsync(front, c)).err)
	p.write(Frame{Type: FrameResponse, ID: p.read().ID})
	require.NoError(t, await(t, doAsync(next, c)).err)
}

func TestASerialWorkerMustAnswerInOrder(t *testing.T) {
	for _, kind := range []FrameType{FrameResponse, FrameChunk} {
		c, p := newSerialPeer(t, Options{})
		front, ahead, asked, _ := twoCalls(t, c, p, within(t))
		p.write(Frame{Type: kind, ID: asked[1].ID})
		require.Error(t, await(t, doAsync(front, c)).err)
		require.Error(t, await(t, doAsync(ahead, c)).err)
		var failed *ProtocolError
		require.ErrorAs(t, c.Err(), &failed)
	}
}

// TestAConnThatHasFailedReadsOnForTheCallAhead: the worker is ended for a call that it does not give up, and the call behind that is not to blame.
func TestAConnThatHasFailedReadsOnForTheCallAhead(t *testing.T) {
	for name, answered := range map[string]bool{"not answered": false, "answered meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			c, p := newSerialPeer(t, Options{CancelGrace: time.Millisecond})
			ctx, cancel := context.WithCancel(t.Context())
			front := Prepare(ctx, Request{Method: "m"}, nil)
			require.True(t, front.Begin(c))
			ahead := Prepare(within(t), Request{Method: "m"}, nil)
			require.True(t, ahead.BeginAhead(c))
			aheads := doAsync(ahead, c)
			asked := p.read()
			p.read()
			cancel()
			_, err := front.Do(c, Event{}, nil)
			require.ErrorIs(t, err, context.Canceled)
			await(t, c.Done())
			require.ErrorIs(t, c.Err(), ErrUnanswered)
			if answered {
				p.write(Frame{Type: FrameResponse, ID: asked.ID})
			}
			require.NoError(t, p.conn.Close())
			got := await(t, aheads)
			require.ErrorIs(t, got.err, ErrUnanswered)
			var failed *CallError
			require.ErrorAs(t, got.err, &failed)
			require.Equal(t, answered, failed.Started)
		})
	}
}

func TestAConnThatIsClosedCannotKnowWhetherTheCallAheadHasBegun(t *testing.T) {
	c, p := newSerialPeer(t, Options{})
	_, ahead, _, _ := twoCalls(t, c, p, within(t))
	aheads := doAsync(ahead, c)
	require.NoError(t, c.Close())
	var failed *CallError
	require.ErrorAs(t, await(t, aheads).err, &failed)
	require.True(t, failed.Started, "the worker lives")
}

func TestACallThatTheWorkerHasNotBegunHasNotStarted(t *testing.T) {
	c, p := newSerialPeer(t, Options{})
	front, ahead, asked, _ := twoCalls(t, c, p, within(t))
	p.write(Frame{Type: FrameError, ID: asked[0].ID, Payload: []byte(`{"code":"error","fatal":true}`)})
	p.write(Frame{Type: FrameError, ID: asked[1].ID, Payload: []byte(`{"code":"not_begun","not_begun":true}`)})
	var remote *RemoteError
	require.ErrorAs(t, await(t, doAsync(front, c)).err, &remote)
	require.True(t, remote.Fatal)
	err := await(t, doAsync(ahead, c)).err
	var failed *CallError
	require.ErrorAs(t, err, &failed)
	require.ErrorIs(t, err, ErrNotBegun)
	require.False(t, failed.Started)
	require.NoError(t, c.Err())
}
