package gateway

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

func TestTheCallsOfAProcessThatHasEndedAreTold(t *testing.T) {
	w := open(t, 1, withSpecEnv("COUNTED", "1"))
	for range 3 {
		require.Equal(t, 200, w.do("POST", "/v1/pools/p/call/echo", "x").status)
	}
	p, found := w.processes.Get("p/0", 1)
	require.True(t, found)
	held := background(func() answer { return w.do("POST", "/v1/pools/p/call/hold", quoted(w.file("held"))) })
	require.Eventually(t, func() bool { _, inFlight := w.gateway.Usage("p/0", 1); return inFlight == 1 }, patience, tick)
	p.Kill("to see")
	<-p.Done()
	usage := w.gateway.Final(t.Context(), "p/0", 1)
	require.EqualValues(t, 4, usage.Requests)
	require.EqualValues(t, 1, usage.Failed, "the call that broke off is among them")
	await(t, held).refusedWith(t, 502, api.CodeWorkerCrashed)
	require.Eventually(t, func() bool {
		d := w.gateway.knownDesk("p")
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.seats["p/0"] == nil
	}, patience, tick)
	require.Equal(t, usage, w.gateway.Final(t.Context(), "p/0", 1), "also when nothing else of it is left")
	require.Zero(t, w.gateway.Final(t.Context(), "p/0", 2))
	require.Zero(t, w.gateway.Final(t.Context(), "q/0", 1))
}

func TestWhatAProcessDidIsForgottenInTime(t *testing.T) {
	d := newDesk(&Gateway{}, "p")
	now := time.Now()
	busy := func(incarnation int64) *seat {
		s := &seat{desk: d, worker: "p/0", incarnation: incarnation}
		s.calls.add(false, time.Second)
		return s
	}
	d.remember(busy(1), now)
	d.remember(&seat{desk: d, worker: "p/0", incarnation: 2}, now)
	require.Len(t, d.past, 1, "what has served nothing is not kept")
	d.remember(busy(3), now.Add(pastKept-1))
	require.Len(t, d.past, 2)
	d.remember(busy(4), now.Add(pastKept))
	require.Len(t, d.past, 2)
	require.EqualValues(t, 3, d.past[0].incarnation)
}

// The next process of a worker may be known before its gateway has seen that the one before has ended.
func TestTheCallsOfAProcessAreToldAlsoWhenTheNextOneTookItsSeat(t *testing.T) {
	w := open(t, 1)
	require.Equal(t, 200, w.do("POST", "/v1/pools/p/call/echo", "x").status)
	old, found := w.processes.Get("p/0", 1)
	require.True(t, found)
	next := w.beside(0, 2)
	d := w.gateway.knownDesk("p")
	d.mu.Lock() // so that the watch of the old seat has to wait
	old.Kill("to see")
	<-old.Done()
	d.take(next)
	d.mu.Unlock()
	require.Eventually(t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.former) == 0
	}, patience, tick)
	require.EqualValues(t, 1, w.gateway.Final(t.Context(), "p/0", 1).Requests)
}

// once has one call made of a new world, and gives the process that served it, and the seat that a process gets.
func once(t *testing.T) (w *world, served *process.Process, seatOf func(*process.Process) *seat) {
	w = open(t, 1)
	require.Equal(t, 200, w.do("POST", "/v1/pools/p/call/echo", "x").status)
	served, found := w.processes.Get("p/0", 1)
	require.True(t, found)
	return w, served, func(p *process.Process) *seat {
		d := w.gateway.knownDesk("p")
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.take(p)
	}
}

// The roster of processes may name one for a moment after it has ended.
func TestAProcessThatHasEndedGetsNoSecondSeat(t *testing.T) {
	w, p, seatOf := once(t)
	first := seatOf(p)
	p.Kill("to see")
	<-p.Done()
	require.Eventually(t, func() bool { return seatOf(p) != first }, patience, tick, "it is forgotten")
	require.Nil(t, seatOf(p))
	require.EqualValues(t, 1, w.gateway.Final(t.Context(), "p/0", 1).Requests)
}

func TestAnIncarnationThatLeavesKeepsItsSeatWhenTheNewestHasDied(t *testing.T) {
	w, p, seatOf := once(t)
	first, second := seatOf(p), w.beside(0, 2)
	newest := seatOf(second)
	require.NotSame(t, first, newest)
	second.Kill("to see")
	require.Eventually(t, func() bool { return seatOf(second) != newest }, patience, tick, "it is forgotten")
	require.Same(t, first, seatOf(p))
	p.Kill("to see")
	<-p.Done()
	require.EqualValues(t, 1, w.gateway.Final(t.Context(), "p/0", 1).Requests)
}
