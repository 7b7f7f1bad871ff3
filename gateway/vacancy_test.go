package gateway

import (
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestAPoolThatHasLeftTheHostLeavesNothingInTheGateway(t *testing.T) {
	w := open(t, 0)
	w.gateway.deskKept = 20 * time.Millisecond
	before := runtime.NumGoroutine()
	for incarnation := int64(1); incarnation <= 3; incarnation++ {
		p := w.start(0, incarnation)
		require.Equal(t, http.StatusOK, w.do("POST", "/v1/pools/p/call/echo", "1").status)
		require.NotNil(t, w.gateway.knownDesk("p"))
		p.Kill("the pool has gone")
		<-p.Done()
		require.Eventually(t, func() bool { return w.gateway.knownDesk("p") == nil }, patience, tick)
	}
	w.http.CloseIdleConnections()
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, patience, tick, "%d goroutines before", before)
}

func TestACallThatFindsItsDeskLeftGoesToTheNext(t *testing.T) {
	w := open(t, 0)
	w.gateway.deskKept = time.Millisecond
	left := w.gateway.desk("p")
	require.Eventually(t, func() bool { return w.gateway.knownDesk("p") == nil }, patience, tick)
	p := w.start(0, 1)
	s := left.seatOf(p)
	require.NotNil(t, s)
	require.NotSame(t, left, s.desk)
	f := newFlight(t.Context())
	require.NoError(t, left.join(f, "", DefaultPriority))
	require.Same(t, s, f.seat)
	s.desk.end(f, api.Errorf(codeInternal, "the test has seen enough"))
}

func TestADeskIsKeptWhileSomebodyAsksForIt(t *testing.T) {
	d := newDesk(&Gateway{deskKept: time.Minute}, "p")
	now := time.Now()
	require.True(t, d.vacant(now))
	require.False(t, d.due(now.Add(59*time.Second), false))
	require.True(t, d.due(now.Add(time.Minute), false))
	d.looked = now.Add(30 * time.Second)
	require.False(t, d.due(now.Add(time.Minute), false), "the pool was asked about since")
	d.queue.Push(newWaiter(newFlight(t.Context()), "", 0))
	require.False(t, d.due(now.Add(time.Hour), false))
	d.queue.Pop()
	require.False(t, d.due(now.Add(time.Hour), false), "it counts from when it was left")
	require.True(t, d.due(now.Add(time.Hour+time.Minute), true))
	require.True(t, d.left)
}
