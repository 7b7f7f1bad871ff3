package mcp

import (
	"bytes"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/spec"
)

// A session keeps 1 MiB of its streams for 5 minutes, and one larger message.
func TestWhatASessionKeepsOfItsStreams(t *testing.T) {
	s := newSession("here", Request{Spec: spec.Default()})
	out := s.stream([]byte("1"), nil, nil)
	primes, err := out.begin()
	require.NoError(t, err)
	require.False(t, primes, "a client of an older revision")
	s.left(out)
	resumes := func(after int64) bool {
		again, err := s.resume(out.eventID(after), nil)
		if err == nil {
			s.left(again)
		}
		return err == nil
	}
	for range 3 {
		require.True(t, out.push(make([]byte, maxKept/2-1)))
	}
	require.Len(t, s.streams.kept, 2)
	require.False(t, resumes(0), "the first one is forgotten")
	require.True(t, resumes(1))
	require.True(t, resumes(3))
	require.False(t, resumes(4), "no such event")
	out.finish(bytes.Repeat([]byte("x"), 2*maxKept))
	require.Len(t, s.streams.kept, 1)
	require.True(t, resumes(3))
	s.streams.expire(time.Now().Add(keptFor - time.Minute))
	require.True(t, resumes(3))
	late, err := s.resume(out.eventID(3), nil)
	require.NoError(t, err)
	s.streams.expire(time.Now().Add(keptFor + time.Minute))
	messages, closed := late.take()
	require.Empty(t, messages, "none, rather than those that are left")
	require.True(t, closed)
	s.left(late)
	require.Zero(t, s.streams.bytes)
	require.False(t, resumes(3))
	require.Empty(t, s.streams.byNumber, "nothing of it is kept, and nothing more comes")

	get := s.stream(nil, nil, nil)
	heard := get.eventID(7)
	for range 2 {
		s.left(get)
		require.Empty(t, s.streams.byNumber)
		get, err = s.resume(heard, nil)
		require.NoError(t, err)
	}
	primes, _ = get.begin()
	require.False(t, primes)
	require.True(t, get.push([]byte("x")))
	_, _ = get.take()
	s.left(get)
	get, err = s.resume(heard, nil)
	require.NoError(t, err)
	messages, _ = get.take()
	require.Equal(t, [][]byte{[]byte("x")}, messages, "sent to a connection that was broken")
	require.Equal(t, strings.TrimSuffix(heard, "7")+"8", get.eventID(get.newest))
	s.left(get)
	s.streams.expire(time.Now().Add(keptFor + time.Minute))
	get, err = s.resume(strings.TrimSuffix(heard, "7")+strconv.Itoa(math.MaxInt64), nil)
	require.NoError(t, err)
	require.NotEqual(t, heard, get.eventID(7), "no event can follow that one")
	s.left(get)
	s.streams.held.Store(maxKeptAll)
	other := s.stream([]byte("2"), nil, nil)
	require.True(t, other.push([]byte("x")))
	messages, _ = other.take()
	require.Equal(t, [][]byte{[]byte("x")}, messages)
	require.False(t, s.stream([]byte("3"), http.Header{"Accept": {typeJSON}}, nil).push([]byte("x")), "it takes no events")
	require.Empty(t, s.streams.kept, "other sessions keep too much")
	require.EqualValues(t, maxKeptAll, s.streams.held.Load())

	long := s.stream(bytes.Repeat([]byte("1"), maxNamed+1), nil, nil)
	require.Less(t, len(long.eventID(1)), 2*maxNamed)
	tag := s.streams.tag
	for _, id := range []string{"", "1", "a.b.c", tag, tag + ".1", tag + ".0.0", tag + ".1.-1", tag + ".1.1.%",
		tag + ".1.1.1.1", "x" + tag[1:] + ".1.1", tag[:ownerDigits] + "........" + ".1.1."} {
		_, err := s.resume(id, nil)
		require.Equal(t, errUnknownEvent, err, id)
	}
}

// What a process sends while its client has no stream waits for one: 1 MiB in all.
func TestWhatWaitsForAStream(t *testing.T) {
	s := newSession("here", Request{Spec: spec.Default()})
	require.True(t, s.deliver(make([]byte, maxUnsent-1), 1, false))
	require.True(t, s.deliver([]byte("x"), 2, false))
	require.False(t, s.deliver([]byte("x"), 3, false))
	out := s.stream(nil, nil, nil)
	s.openLocked(out.stream)
	require.Empty(t, s.waiting)
	unread, last, _ := out.unread()
	require.Equal(t, 2, unread)
	require.Equal(t, "x", string(last))
}

// However many connections resume a stream at once, none of them remains once they have all ended.
func TestConnectionsThatResumeAStreamAtOnce(t *testing.T) {
	s := newSession("here", Request{Spec: spec.Default()})
	out := s.stream([]byte("1"), nil, nil)
	_, _ = out.begin()
	for range 5000 {
		var connections sync.WaitGroup
		for range 3 {
			connections.Go(func() {
				if again, err := s.resume(out.eventID(0), nil); assert.NoError(t, err) {
					s.left(again)
				}
			})
		}
		connections.Wait()
		require.Empty(t, s.opened)
	}
}

// A request that has entered a session just before its end is not begun: its client may repeat it in another one.
func TestARequestDoesNotBeginInASessionThatHasEnded(t *testing.T) {
	q := Request{Pool: "p", Spec: spec.Default(), Body: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)}
	q.Spec.MCP.Mode, q.Spec.MCP.Park = spec.MCPShared, 0
	e, s := New(Config{}), newSession("here", q)
	require.True(t, s.enter())
	e.drop(s, "the client has ended it")
	e.closed = true // a call that began would fail with pool.ErrClosing
	post := httptest.NewRequest(http.MethodPost, "/", nil)
	post.Header = http.Header{"Content-Type": {typeJSON}, "Accept": {typeJSON}, headerSession: {"unknown"}}
	err := e.request(httptest.NewRecorder(), post, q, s, message{ID: []byte("1"), Method: "tools/call"})
	require.Equal(t, errUnknown, err, "it has looked for the session again, which another host may have")
	require.Empty(t, e.flights)
	require.Equal(t, 1, s.uses)
}

// No id of an event resumes what it does not name.
func FuzzResume(f *testing.F) {
	for _, seed := range []string{"1.0.MQ", "1.1.MQ", "1.0", "9.0.", "-1.0", "1.9223372036854775807.MQ", "...."} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, id string, here bool) {
		s := newSession("here", Request{Spec: spec.Default()})
		out := s.stream([]byte("1"), nil, nil)
		tag := s.streams.tag
		if !here {
			tag = tag[:ownerDigits] + "AAAAAAAA"
		}
		got, err := s.resume(tag+"."+id, nil)
		if err != nil {
			require.Equal(t, errUnknownEvent, err)
		} else if here && !got.isGet {
			require.Equal(t, out.stream, got.stream)
		}
	})
}
