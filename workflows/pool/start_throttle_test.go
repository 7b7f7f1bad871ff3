package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// starting reports ends of starts as a worker does.
func (p *fakePool) startsEnded(number int, all, failed int64) {
	a := p.workers[number]
	a.entry.Starts, a.entry.StartsFailed = all, failed
	a.report(a.entry.State)
}

// requestStartAt has a worker ask for the start of incarnation 2 at a time.
func (p *fakePool) requestStartAt(when time.Duration, number int) {
	p.signalAt(when, api.SignalStartRequested, api.StartRequested{Slot: number, Incarnation: 2})
}

func TestWhenHalfOfAllStartsFailThePoolHoldsThemAndLetsOneTry(t *testing.T) {
	throughRuns(t, []int{0, 1, 2, 3}, func(t *testing.T, p *fakePool) {
		p.At(5*time.Second, func() { p.startsEnded(0, 3, 2) })
		p.At(6*time.Second, func() { p.startsEnded(1, 3, 2) })
		p.At(7*time.Second, func() {
			require.Empty(t, p.status().StartsPaused, "four failures are not enough")
			p.workers[2].entry.State, p.workers[2].entry.ReasonCode = lifecycle.Pending, api.ReasonBackoff
			p.startsEnded(2, 2, 1)
		})
		p.requestStartAt(8*time.Second, 0)
		p.requestStartAt(9*time.Second, 1)
		p.At(10*time.Second, func() {
			require.NotEmpty(t, p.status().StartsPaused)
			held := p.status().Workers[2]
			require.Equal(t, api.ReasonBreaker, held.ReasonCode, "its wait for the breaker does not change its state")
			require.Equal(t, startsPausedReason, held.Reason)
			for i := range 3 {
				require.Len(t, p.workers[i].timesOf(api.SignalStartsPaused), 1, "worker %d", i)
			}
			require.Empty(t, p.workers[0].timesOf(api.SignalStartPermitted))
		})
		p.At(50*time.Second, func() {
			require.Len(t, p.workers[0].timesOf(api.SignalStartPermitted), 1)
			require.Empty(t, p.workers[1].timesOf(api.SignalStartPermitted), "one tries for all")
			p.startsEnded(0, 12, 10) // it fails eight times and then succeeds
		})
		p.At(55*time.Second, func() {
			require.Empty(t, p.status().StartsPaused)
			require.Equal(t, api.ReasonBackoff, p.status().Workers[2].ReasonCode)
			require.Len(t, p.workers[1].timesOf(api.SignalStartPermitted), 1)
			require.Len(t, p.workers[1].timesOf(api.SignalStartsPaused), 2)
			require.Empty(t, p.workers[1].received[len(p.workers[1].received)-2].message.(api.StartsPaused).Reason)
		})
		p.runUntil(time.Minute, poolOf(3))
		tried := p.workers[0].timesOf(api.SignalStartPermitted)[0]
		require.InDelta(t, 37, tried.Seconds(), 1, "30 s after the breaker opened")
		require.Equal(t, []string{
			`/pools/t pool.held {"reason":"` + startsPausedReason + `"}`,
			`/pools/t alert.raised {"alert":"starts_held","reason":"` + startsPausedReason + `"}`,
			`/pools/t pool.released {"reason":"starts are no longer held"}`,
			`/pools/t alert.cleared {"alert":"starts_held","reason":"` + startsPausedReason + `"}`,
		}, p.emitted)
	})
}

func TestFailuresOfATrialFromBeforeARestartOfThePoolDoNotOpenTheBreakerAgain(t *testing.T) {
	p := newFakePool(t)
	p.At(5*time.Second, func() {
		p.workers[0].entry.State = lifecycle.Pending
		p.startsEnded(0, 5, 5)
	})
	p.signalAt(6*time.Second, api.SignalStartRequested, api.StartRequested{Slot: 0, Incarnation: 1})
	p.At(50*time.Second, func() { require.Len(t, p.workers[0].timesOf(api.SignalStartPermitted), 1) })
	p.UpdateAt(51*time.Second, api.UpdateRestart, api.RestartRequest{})
	p.At(52*time.Second, func() { p.startsEnded(0, 15, 15) }) // the ten failures of the trial, which it has not reported
	p.At(53*time.Second, func() { require.Empty(t, p.status().StartsPaused) })
	p.At(54*time.Second, func() { p.startsEnded(0, 20, 20) })
	p.At(55*time.Second, func() { require.NotEmpty(t, p.status().StartsPaused, "these are new") })
	p.runUntil(time.Minute, poolOf(2))
}

func TestABreakerIsOpenUntilThereIsANewSpecOrAllServeAndAPoolOfOneHasNone(t *testing.T) {
	for name, c := range map[string]struct {
		size, signals int
		closes        func(*fakePool)
	}{
		"a new spec": {2, 2, func(p *fakePool) { p.Update(api.UpdateApply, api.ApplyRequest{Spec: specOf(1, "next")}) }},
		"all serve":  {2, 2, func(p *fakePool) { p.workers[0].report(lifecycle.Ready) }},
		"one worker": {1, 0, func(*fakePool) {}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFakePool(t)
			p.At(5*time.Second, func() {
				p.workers[0].entry.State = lifecycle.Pending
				p.startsEnded(0, 9, 9)
			})
			p.At(6*time.Second, func() {
				require.Equal(t, c.size > 1, p.status().StartsPaused != "")
				c.closes(p)
			})
			p.At(7*time.Second, func() { require.Empty(t, p.status().StartsPaused) })
			p.runUntil(20*time.Second, poolOf(c.size))
			require.Len(t, p.workers[0].timesOf(api.SignalStartsPaused), c.signals)
		})
	}
}

func TestStartsDoNotExceedTheRate(t *testing.T) {
	p := newFakePool(t)
	run := poolOf(5)
	run.Spec.Start.RatePerSecond = 2
	for i := range 5 {
		p.requestStartAt(5*time.Second, i)
	}
	p.runUntil(20*time.Second, run)
	for i := range 5 {
		times := p.workers[i].timesOf(api.SignalStartPermitted)
		require.Len(t, times, 1, "worker %d", i)
		require.InDelta(t, 5+float64(i)/2, times[0].Seconds(), 0.2, "worker %d", i)
	}
}

// Its next process failed to start, or an operator has stopped or suspended it meanwhile.
func TestTheTrialOfTheBreakerEndsWithARotationThatStartsNothing(t *testing.T) {
	p := newFakePool(t)
	p.At(5*time.Second, func() {
		p.workers[0].entry.State, p.workers[1].unresponsive = lifecycle.Pending, true
		p.startsEnded(0, 5, 5)
	})
	p.requestRotationAt(40*time.Second, 1)
	p.requestStartAt(41*time.Second, 0)
	p.At(50*time.Second, func() {
		require.Len(t, p.workers[1].timesOf(api.SignalRotationGrant), 1)
		require.Empty(t, p.workers[0].timesOf(api.SignalStartPermitted), "one tries for all")
		p.env.SignalWorkflow(api.SignalRotationDone, api.RotationDone{Slot: 1, Incarnation: 1, Reason: "worker suspended"})
	})
	p.runUntil(2*time.Minute, poolOf(2))
	require.NotEmpty(t, p.workers[0].timesOf(api.SignalStartPermitted))
	require.InDelta(t, 80, p.workers[0].timesOf(api.SignalStartPermitted)[0].Seconds(), 1, "after a pause")
}
