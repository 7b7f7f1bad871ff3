package wire

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// doAsync waits for an exchange that somebody else begins, as a queue above the Conn does.
func doAsync(x *Exchange, c *Conn) <-chan outcome {
	return background(func() outcome {
		<-x.Ready()
		resp, err := x.Do(c, nil)
		return outcome{resp, err}
	})
}

// whenAnswered is an Observer.
type whenAnswered func(error)

func (f whenAnswered) Answered(err error) { f(err) }

func (whenAnswered) AnsweredLate(error) {}

func TestOnAnswerCanBeginTheNextExchange(t *testing.T) {
	c, p := newPeer(t, Options{})
	next := Prepare(within(t), Request{Method: "m", Payload: []byte("second")}, nil)
	began := make(chan bool, 1)
	first := Prepare(within(t), Request{Method: "m", Payload: []byte("first")}, whenAnswered(func(err error) {
		if err != nil {
			t.Errorf("the first call failed: %v", err)
		}
		began <- next.Begin(c)
	}))
	require.True(t, first.Begin(c))
	asked := p.read()
	p.write(Frame{Type: FrameResponse, ID: asked.ID}) // nobody waits for it yet
	require.True(t, await(t, began))
	asked = p.read()
	require.Equal(t, "second", string(asked.Payload))
	p.write(Frame{Type: FrameResponse, ID: asked.ID, Payload: []byte("done")})
	requireAnswer(t, doAsync(first, c), "")
	requireAnswer(t, doAsync(next, c), "done")
}

func TestIDsBeginAgainAndSkipThoseInFlight(t *testing.T) {
	c, p := newPeer(t, Options{MaxInflight: 2})
	long := callAsync(within(t), c, Request{Method: "m"})
	first := p.read().ID
	require.EqualValues(t, 1, first)
	c.mu.Lock()
	c.lastID = maxCallID - 2
	c.mu.Unlock()
	for _, id := range []uint32{maxCallID - 1, 2} {
		next := callAsync(within(t), c, Request{Method: "m"})
		require.Equal(t, id, p.read().ID)
		p.write(Frame{Type: FrameResponse, ID: id})
		requireAnswer(t, next, "")
	}
	p.write(Frame{Type: FrameResponse, ID: first})
	requireAnswer(t, long, "")
}

func TestBeginFailsAtMaxInflight(t *testing.T) {
	c, p := newPeer(t, Options{})
	busy := callAsync(within(t), c, Request{Method: "m"})
	asked := p.read()
	x := Prepare(within(t), Request{Method: "m"}, nil)
	require.False(t, x.Begin(c))
	p.write(Frame{Type: FrameResponse, ID: asked.ID})
	require.NoError(t, await(t, busy).err)
	require.True(t, x.Begin(c), "there is a place now")
	p.write(Frame{Type: FrameResponse, ID: p.read().ID})
	require.NoError(t, await(t, doAsync(x, c)).err)
}

func TestAWithdrawnExchangeIsNotSent(t *testing.T) {
	c, p := newPeer(t, Options{})
	x := Prepare(within(t), Request{Method: "m"}, nil)
	require.True(t, x.Withdraw())
	require.False(t, x.Begin(c))
	require.Zero(t, c.InFlight())
	done := background(func() error { return errorOf(x.Do(c, nil)) })
	p.write(Frame{Type: FrameResponse, ID: p.read().ID})
	require.NoError(t, await(t, done))
	x.mu.Lock()
	require.False(t, x.withdrawn, "the pool has it now")
	x.mu.Unlock()

	cancelled, cancel := context.WithCancel(context.Background())
	x = Prepare(cancelled, Request{Method: "m"}, nil)
	cancel()
	require.False(t, x.Begin(c))
	_, err := x.Do(c, nil)
	requireStarted(t, false, err)

	x = Prepare(within(t), Request{Method: "m"}, nil)
	require.True(t, x.Begin(c))
	require.False(t, x.Withdraw(), "it is on its way")
}

func TestABegunExchangeFailsWhenItsConnBreaks(t *testing.T) {
	c, p := newPeer(t, Options{})
	x := Prepare(within(t), Request{Method: "m"},
		whenAnswered(func(error) { t.Error("a call that was cut was answered") }))
	require.True(t, x.Begin(c))
	done := doAsync(x, c)
	p.read()
	require.NoError(t, p.conn.out.Close(), "the socket stays open")
	got := await(t, done)
	require.ErrorIs(t, got.err, ErrPeerClosed)
	requireStarted(t, true, got.err)
}

func TestACallThatTheWorkerHasNotBegunHasNotStarted(t *testing.T) {
	c, p := newPeer(t, Options{MaxInflight: 2})
	begin := func() (<-chan outcome, Frame) {
		x := Prepare(within(t), Request{Method: "m"}, nil)
		require.True(t, x.Begin(c))
		return doAsync(x, c), p.read()
	}
	front, first := begin()
	behind, second := begin()
	p.write(Frame{Type: FrameError, ID: first.ID, Payload: []byte(`{"code":"error","fatal":true}`)})
	p.write(Frame{Type: FrameError, ID: second.ID, Payload: []byte(`{"code":"not_begun","not_begun":true}`)})
	var remote *RemoteError
	require.ErrorAs(t, await(t, front).err, &remote)
	require.True(t, remote.Fatal)
	err := await(t, behind).err
	requireStarted(t, false, err)
	require.ErrorIs(t, err, ErrNotBegun)
	require.NoError(t, c.Err())
}

func TestAnExchangeEndsOnceThoughItIsAnsweredBeforeItIsSent(t *testing.T) {
	c, p := newPeer(t, Options{})
	x := Prepare(within(t), Request{Method: "m", Payload: make([]byte, maxJoinedPayload+1)}, nil)
	c.out.mu.Lock()
	c.out.tryWrite = func(data []byte) (int, error) {
		if len(data) <= maxJoinedPayload {
			return len(data), nil
		}
		p.write(Frame{Type: FrameResponse, ID: x.id})
		require.Eventually(t, func() bool { return c.InFlight() == 0 }, waitTimeout, time.Millisecond)
		return 0, syscall.EPIPE
	}
	c.out.mu.Unlock()
	require.True(t, x.Begin(c))
	require.NoError(t, c.Close())
	require.Len(t, x.events, 1, "the next call that gets the Exchange would get the second")
	require.True(t, x.answered())
}
