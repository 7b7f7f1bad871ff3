package wire

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// slowStream streams a call whose onChunk waits for a token before each piece. It returns the pieces, each after its
// content type.
func slowStream(ctx context.Context, c *Conn, tokens <-chan struct{}) (<-chan outcome, *[]string) {
	var got []string
	done := background(func() outcome {
		resp, err := Prepare(ctx, Request{Method: "m"}, nil).Do(c, func(chunk []byte, contentType string) error {
			<-tokens
			got = append(got, contentType+string(chunk))
			return nil
		})
		return outcome{resp, err}
	})
	return done, &got
}

func TestASlowStreamReaderDoesNotBlockOtherCalls(t *testing.T) {
	c, p := newPeer(t, Options{MaxInflight: 2})
	tokens := make(chan struct{})
	done, got := slowStream(within(t), c, tokens)
	slow := p.read()
	const pieces = 20 * waitingEvents
	var want []string
	for i := range pieces {
		want = append(want, fmt.Sprint(i))
		chunk := Frame{Type: FrameChunk, ID: slow.ID, Payload: []byte(want[i])}
		switch i {
		case 0:
			chunk.Headers = map[string]string{"content-type": "text/csv", "other": "x"}
			want[i] = "text/csv" + want[i]
		case 1: // it would wait outside of the stream's buffer
			chunk.Headers = map[string]string{"content-type": strings.Repeat("x", maxContentType+1)}
		}
		p.write(chunk)
	}
	p.write(Frame{Type: FrameResponse, ID: slow.ID, Payload: []byte("end")})

	other := callAsync(within(t), c, Request{Method: "m"})
	p.write(Frame{Type: FrameResponse, ID: p.read().ID})
	require.NoError(t, await(t, other).err, "it is answered while the stream has not been read at all")

	close(tokens)
	end := await(t, done)
	require.NoError(t, end.err)
	require.Equal(t, "end", string(end.resp.Payload))
	require.Equal(t, want, *got, "all pieces, in their order")
}

func TestAStreamThatExceedsItsBufferFails(t *testing.T) {
	for _, piece := range []int{100 << 10, 0} {
		c, p := newPeer(t, Options{MaxInflight: 2})
		tokens := make(chan struct{})
		done, got := slowStream(within(t), c, tokens)
		slow := p.read()
		cancelled := background(p.read)
		chunk, err := AppendFrame(nil, Frame{Type: FrameChunk, ID: slow.ID, Payload: bytes.Repeat([]byte("x"), piece)})
		require.NoError(t, err)
		require.NoError(t, errorOf(p.conn.Write(bytes.Repeat(chunk, 2*streamBuffer/(piece+eventOverhead)))))
		asked := await(t, cancelled)
		require.Equal(t, FrameCancel, asked.Type)
		require.Equal(t, slow.ID, asked.ID)
		require.Equal(t, 1, c.InFlight(), "the place is taken until the worker answers")

		close(tokens)
		end := await(t, done)
		require.ErrorIs(t, end.err, ErrSlowReader)
		require.LessOrEqual(t, len(strings.Join(*got, "")), streamBuffer, "what waited was dropped")
		require.Zero(t, buffered.Load())
		p.write(Frame{Type: FrameError, ID: slow.ID, Payload: []byte(`{"code":"cancelled"}`)})
		other := callAsync(within(t), c, Request{Method: "m"})
		other2 := callAsync(within(t), c, Request{Method: "m"})
		for range 2 {
			p.write(Frame{Type: FrameResponse, ID: p.read().ID})
		}
		require.NoError(t, await(t, other).err)
		require.NoError(t, await(t, other2).err)
	}
}

// TestSlowReadersShareABudget: each is within its own buffer. What ends gives back what it had.
func TestSlowReadersShareABudget(t *testing.T) {
	const streams, piece = 4, 100 << 10
	const others = streamsBuffer - streams*5*piece // of Conns that this test does not need
	buffered.Add(others)
	t.Cleanup(func() { buffered.Add(-others) })
	c, p := newPeer(t, Options{MaxInflight: streams})
	ctx, leave := context.WithCancel(within(t))
	tokens := make(chan struct{})
	var ends []<-chan outcome
	var ids []uint32
	for range streams {
		done, _ := slowStream(ctx, c, tokens)
		ends, ids = append(ends, done), append(ids, p.read().ID)
	}
	cancelled := background(p.read)
	for range 10 { // of which 2 may not count
		for _, id := range ids[1:] {
			p.write(Frame{Type: FrameChunk, ID: id, Payload: make([]byte, piece)})
		}
	}
	require.Contains(t, ids[1:], await(t, cancelled).ID, "the one that exceeds it")
	require.LessOrEqual(t, buffered.Load(), int64(streamsBuffer))
	go func() {
		for p.readQuietly().ID != 0 { // the other cancels
		}
	}()
	leave()
	close(tokens)
	for _, end := range ends {
		require.Error(t, await(t, end).err)
	}
	require.EqualValues(t, others, buffered.Load())
}

func TestCloseEndsTheWaitForASlowStreamReader(t *testing.T) {
	c, p := newPeer(t, Options{})
	tokens := make(chan struct{})
	done, _ := slowStream(within(t), c, tokens)
	slow := p.read()
	chunk, err := AppendFrame(nil, Frame{Type: FrameChunk, ID: slow.ID})
	require.NoError(t, err)
	require.NoError(t, errorOf(p.conn.Write(bytes.Repeat(chunk, 2*waitingEvents))))
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.calls[slow.ID].events) == waitingEvents
	}, waitTimeout, time.Millisecond)
	require.NoError(t, c.Close())
	close(tokens)
	require.ErrorIs(t, await(t, done).err, ErrClosed)
}

func TestASlowStreamReaderWithMaxInflight1SlowsItsWorker(t *testing.T) {
	c, p := newPeer(t, Options{})
	tokens := make(chan struct{})
	done, got := slowStream(within(t), c, tokens)
	slow := p.read()
	var want []string
	for i := range 100 {
		want = append(want, strings.Repeat(string(rune(i)), 100<<10))
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		for _, piece := range want {
			p.write(Frame{Type: FrameChunk, ID: slow.ID, Payload: []byte(piece)})
		}
		p.write(Frame{Type: FrameResponse, ID: slow.ID})
	}()
	for range 10 {
		tokens <- struct{}{}
	}
	select {
	case <-written:
		t.Fatal("10 MB were taken in of which 1 MB was read")
	default:
	}
	close(tokens)
	require.NoError(t, await(t, done).err)
	require.True(t, slices.Equal(want, *got), "all pieces, in their order")
	await(t, written)
}

func TestAnInboxKeepsNoEventThatWasTaken(t *testing.T) {
	c, _ := newPeer(t, Options{})
	x := Prepare(t.Context(), Request{}, nil)
	x.conn = c
	for range waitingEvents {
		c.pushLocked(x, event{data: []byte("x"), isChunk: true})
	}
	for range 2 {
		require.NoError(t, errorOf(x.take()))
		c.pushLocked(x, event{data: []byte("x"), isChunk: true})
	}
	for len(x.events) > 0 {
		require.NoError(t, errorOf(x.take()))
	}
	require.Zero(t, x.space)
}
