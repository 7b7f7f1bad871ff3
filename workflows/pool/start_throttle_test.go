package pool

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// starting reports ends of starts as a worker does.
func (p *troupe) startsEnded(number int, all, failed int64) {
	a := p.actors[number]
	a.entry.Starts, a.entry.StartsFailed = all, failed
	a.tell(a.entry.State)
}

func TestWhenHalfOfAllStartsFailThePoolHoldsThemAndLetsOneTry(t *testing.T) {
	for _, every := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprintf("a new run every %d turns", every), func(t *testing.T) {
			p := newTroupe(t)
			run := poolOf(3)
			run.ContinueEvery = every
			p.at(5*time.Second, func() { p.startsEnded(0, 3, 2) })
			p.at(6*time.Second, func() { p.startsEnded(1, 3, 2) })
			p.at(7*time.Second, func() {
				require.Empty(t, p.status().Held, "four failures are not enough")
				p.actors[2].entry.State = lifecycle.Pending
				p.startsEnded(2, 2, 1)
			})
			wish := func(when time.Duration, number int) {
				p.tellAt(when, api.SignalStartRequested, api.StartRequested{Slot: number, Incarnation: 2})
			}
			wish(8*time.Second, 0)
			wish(9*time.Second, 1)
			p.at(10*time.Second, func() {
				require.NotEmpty(t, p.status().Held)
				for i := range 3 {
					require.Len(t, p.actors[i].heardOf(api.SignalStartsHeld), 1, "worker %d", i)
				}
				require.Empty(t, p.actors[0].heardOf(api.SignalStartReleased))
			})
			p.at(50*time.Second, func() {
				require.Len(t, p.actors[0].heardOf(api.SignalStartReleased), 1)
				require.Empty(t, p.actors[1].heardOf(api.SignalStartReleased), "one tries for all")
				p.startsEnded(0, 4, 2) // and succeeds
			})
			p.at(55*time.Second, func() {
				require.Empty(t, p.status().Held)
				require.Len(t, p.actors[1].heardOf(api.SignalStartReleased), 1)
				require.Len(t, p.actors[1].heardOf(api.SignalStartsHeld), 2)
				require.Empty(t, p.actors[1].heard[len(p.actors[1].heard)-2].message.(api.StartsHeld).Reason)
			})
			p.stopAt(time.Minute)
			p.play(run)
			tried := p.actors[0].heardOf(api.SignalStartReleased)[0]
			require.InDelta(t, 37, tried.Seconds(), 1, "30 s after the breaker opened")
		})
	}
}

func TestANewSpecLetsHeldStartsGo(t *testing.T) {
	p := newTroupe(t)
	p.at(5*time.Second, func() { p.startsEnded(0, 5, 5) })
	p.ask(6*time.Second, api.UpdateApply, api.ApplyRequest{Spec: specOf(1, "next")})
	p.at(7*time.Second, func() { require.Empty(t, p.status().Held) })
	p.stopAt(20 * time.Second)
	p.play(poolOf(2))
	require.Len(t, p.actors[0].heardOf(api.SignalStartsHeld), 2)
}

func TestAPoolOfOneHasNoBreaker(t *testing.T) {
	p := newTroupe(t)
	p.at(5*time.Second, func() { p.startsEnded(0, 9, 9) })
	p.at(6*time.Second, func() { require.Empty(t, p.status().Held) })
	p.stopAt(20 * time.Second)
	p.play(poolOf(1))
	require.Empty(t, p.actors[0].heardOf(api.SignalStartsHeld))
}

func TestABreakerClosesWhenAllServeAgainHoweverTheyCameTo(t *testing.T) {
	p := newTroupe(t)
	p.at(5*time.Second, func() {
		p.actors[0].entry.State = lifecycle.Pending
		p.startsEnded(0, 5, 5)
	})
	p.at(6*time.Second, func() {
		require.NotEmpty(t, p.status().Held)
		p.actors[0].tell(lifecycle.Ready)
	})
	p.at(7*time.Second, func() { require.Empty(t, p.status().Held) })
	p.stopAt(20 * time.Second)
	p.play(poolOf(2))
}

func TestStartsAreLetGoNoFasterThanTheRate(t *testing.T) {
	p := newTroupe(t)
	run := poolOf(5)
	run.Spec.Start.RatePerSecond = 2
	for i := range 5 {
		p.tellAt(5*time.Second, api.SignalStartRequested, api.StartRequested{Slot: i, Incarnation: 2})
	}
	p.stopAt(20 * time.Second)
	p.play(run)
	for i := range 5 {
		times := p.actors[i].heardOf(api.SignalStartReleased)
		require.Len(t, times, 1, "worker %d", i)
		require.InDelta(t, 5+float64(i)/2, times[0].Seconds(), 0.2, "worker %d", i)
	}
}
