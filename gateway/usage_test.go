package gateway

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
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
	await(t, held).refusedWith(t, 502, tempool.CodeWorkerCrashed)
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

// The roster of processes may name one for a moment after it has ended.
func TestAProcessThatHasEndedGetsNoSecondSeat(t *testing.T) {
	w := open(t, 1)
	require.Equal(t, 200, w.do("POST", "/v1/pools/p/call/echo", "x").status)
	p, found := w.processes.Get("p/0", 1)
	require.True(t, found)
	p.Kill("to see")
	<-p.Done()
	d := w.gateway.knownDesk("p")
	require.Eventually(t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.seatAt("p/0", 1) == nil
	}, patience, tick)
	d.mu.Lock()
	second := d.take(p)
	d.mu.Unlock()
	require.Nil(t, second)
	require.EqualValues(t, 1, w.gateway.Final(t.Context(), "p/0", 1).Requests)
}

func TestAnIncarnationThatLeavesKeepsItsSeatWhenTheNewestHasDied(t *testing.T) {
	w := open(t, 1)
	require.Equal(t, 200, w.do("POST", "/v1/pools/p/call/echo", "x").status)
	first, found := w.processes.Get("p/0", 1)
	require.True(t, found)
	second := w.beside(0, 2)
	d := w.gateway.knownDesk("p")
	seatOf := func(p *process.Process) *seat {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.take(p)
	}
	before := seatOf(first)
	require.NotSame(t, before, seatOf(second))
	second.Kill("to see")
	require.Eventually(t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.seatAt("p/0", 2) == nil
	}, patience, tick)
	require.Same(t, before, seatOf(first))
	first.Kill("to see")
	<-first.Done()
	require.EqualValues(t, 1, w.gateway.Final(t.Context(), "p/0", 1).Requests)
}
