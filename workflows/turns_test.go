package workflows

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// tellAt has the pool get a signal at a time.
func (p *troupe) tellAt(when time.Duration, name string, message any) {
	p.at(when, func() { p.env.SignalWorkflow(name, message) })
}

// wishAt has a worker ask for a turn at a time.
func (p *troupe) wishAt(when time.Duration, number int) {
	p.tellAt(when, api.SignalRotationRequest, api.RotationRequest{Slot: number, Incarnation: 1, Cause: api.CauseUptime, Reason: "it is old"})
}

func TestWorkersThatAllWantToGoAtOnceGoOneAfterTheOther(t *testing.T) {
	for _, budget := range []int{1, 2} {
		for _, every := range []int{0, 1, 2, 3, 5} {
			t.Run(fmt.Sprintf("max_unavailable %d, a new run every %d turns", budget, every), func(t *testing.T) {
				p := newTroupe(t)
				run := poolOf(6)
				run.Spec.Rotation.MaxUnavailable = budget
				run.ContinueEvery = every
				for i := range 6 {
					p.wishAt(5*time.Second, i)
					p.wishAt(5*time.Second+500*time.Millisecond, i) // said twice, meant once
				}
				p.at(time.Minute, func() {
					for i, w := range p.status().Workers {
						require.EqualValues(t, 2, w.Incarnation, "worker %d", i)
						require.Equal(t, lifecycle.Ready, w.State)
					}
				})
				p.stopAt(2 * time.Minute)
				p.play(run)
				require.Equal(t, budget, p.peak)
			})
		}
	}
}

func TestRolloutsAndTurnsShareOneBudget(t *testing.T) {
	p := newTroupe(t)
	for i := range 4 {
		p.wishAt(5*time.Second, i)
	}
	p.ask(5*time.Second+100*time.Millisecond, api.UpdateRestart, api.RestartRequest{Reason: "new moon"})
	p.at(time.Minute, func() {
		require.Nil(t, p.status().Rollout)
		for _, w := range p.status().Workers {
			require.GreaterOrEqual(t, w.Incarnation, int64(2))
		}
	})
	p.stopAt(2 * time.Minute)
	p.play(poolOf(4))
	require.Equal(t, 1, p.peak)
}

func TestATurnThatIsGivenUpMakesRoomForTheNext(t *testing.T) {
	p := newTroupe(t)
	p.wishAt(5*time.Second, 0)
	p.at(5*time.Second+20*time.Millisecond, func() { // granted: now it fails
		p.actors[0].scene++
		p.actors[0].restarting = false
		p.actors[0].tell(lifecycle.Ready)
		p.env.SignalWorkflow(api.SignalRotationDone, api.RotationDone{Slot: 0, Incarnation: 1, Failed: true, Reason: "no memory"})
	})
	p.wishAt(6*time.Second, 1)
	p.at(10*time.Second, func() {
		require.EqualValues(t, 1, p.status().Workers[0].Incarnation)
		require.EqualValues(t, 2, p.status().Workers[1].Incarnation)
	})
	p.stopAt(20 * time.Second)
	p.play(poolOf(2))
}

func TestARolloutHaltsWhenASuccessorCannotStartAndTheWorkerServesOn(t *testing.T) {
	p := newTroupe(t)
	p.ask(5*time.Second, api.UpdateApply, api.ApplyRequest{Spec: specOf(3, "next")})
	p.at(5*time.Second+50*time.Millisecond, func() {
		p.actors[0].scene++
		p.actors[0].tell(lifecycle.Ready)
		p.env.SignalWorkflow(api.SignalRotationDone, api.RotationDone{Slot: 0, Incarnation: 1, Failed: true, Reason: "the model file is missing"})
	})
	p.at(20*time.Second, func() {
		s := p.status()
		require.Contains(t, s.Rollout.Halted, "the model file is missing")
		require.Equal(t, 3, s.Ready)
		require.Equal(t, []int{1, 2}, s.Rollout.Waiting)
	})
	p.stopAt(30 * time.Second)
	p.play(poolOf(3))
}

func TestChangedFilesRestartTheWorkersOfTheirHost(t *testing.T) {
	p := newTroupe(t)
	p.at(4*time.Second, func() {
		for i, a := range p.actors {
			a.entry.Host = []string{"a", "b"}[i%2]
			a.tell(lifecycle.Ready)
		}
	})
	p.tellAt(5*time.Second, api.SignalFilesChanged, api.FilesChanged{Pool: "t", Host: "a", Files: []string{"/srv/model.py", "/srv/x.py"}})
	p.at(time.Minute, func() {
		for i, a := range p.actors {
			require.Len(t, a.heardOf(api.SignalRestart), 1-i%2, "worker %d", i)
		}
		r := p.actors[0].heard[0].message.(api.Restart)
		require.Equal(t, "file /srv/model.py changed, and 1 more on host a", r.Reason)
		require.Equal(t, api.CauseFiles, r.Cause)
	})
	p.stopAt(2 * time.Minute)
	p.play(poolOf(4))
	require.Equal(t, 1, p.peak)
}

func TestChangedFilesMayRestartAllAtOnce(t *testing.T) {
	p := newTroupe(t)
	run := poolOf(4)
	run.Spec.Watch.Mode = "all"
	p.tellAt(5*time.Second, api.SignalFilesChanged, api.FilesChanged{Pool: "t", Files: []string{"/srv/model.py"}})
	p.stopAt(time.Minute)
	p.play(run)
	require.Equal(t, 4, p.peak)
}

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

func TestARolloutTakesAPendingWorkerAlongUnderTheNumberItHas(t *testing.T) {
	p := newTroupe(t)
	p.at(5*time.Second, func() {
		p.actors[0].scene++
		p.actors[0].entry.Incarnation = 2
		p.actors[0].tell(lifecycle.Pending)
	})
	p.ask(6*time.Second, api.UpdateApply, api.ApplyRequest{Spec: specOf(2, "next")})
	p.at(6*time.Second+100*time.Millisecond, func() { // it does not drain, and starts under its number
		p.actors[0].scene++
		p.actors[0].entry.SpecVersion = 2
		p.actors[0].tell(lifecycle.Ready)
	})
	p.at(30*time.Second, func() {
		require.Nil(t, p.status().Rollout)
		require.Equal(t, []string{"0 ready #2 v2", "1 ready #2 v2"}, slotsOf(p.status()))
	})
	p.stopAt(time.Minute)
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

// pressure is the word of host "h", on which all workers are; worker i uses (i+1) × 100 MB.
func (p *troupe) pressure(level string) {
	m := api.MemoryPressure{Host: "h", Level: level, Reason: "Memory pressure is " + level + "."}
	for i, a := range p.actors {
		m.Workers = append(m.Workers, api.WorkerMemory{Slot: i, Incarnation: a.entry.Incarnation, RSSBytes: int64(i+1) * 100_000_000})
	}
	p.env.SignalWorkflow(api.SignalMemoryPressure, m)
}

func (p *troupe) onOneHost() {
	for _, a := range p.actors {
		a.entry.Host = "h"
		a.tell(lifecycle.Ready)
	}
}

func TestACriticalHostLosesHalfOfItsWorkersLargestFirstUntilItHasMemoryAgain(t *testing.T) {
	p := newTroupe(t)
	p.at(4*time.Second, p.onOneHost)
	for s := 5; s <= 30; s += 5 { // said again and again, done once
		p.at(time.Duration(s)*time.Second, func() { p.pressure("critical") })
	}
	p.at(32*time.Second, func() {
		require.Equal(t, []int{4, 3}, p.status().Parked)
		require.Equal(t, 3, p.status().Ready)
		require.Contains(t, p.actors[4].heard[0].message.(api.Control).Reason, "500 MB")
		p.pressure("medium")
	})
	p.at(40*time.Second, func() {
		require.Empty(t, p.status().Parked)
		require.Equal(t, 5, p.status().Ready)
	})
	p.stopAt(time.Minute)
	p.play(poolOf(5))
}

func TestWhatWasStoppedOnAHostThatFellSilentComesBack(t *testing.T) {
	p := newTroupe(t)
	p.at(4*time.Second, p.onOneHost)
	p.at(5*time.Second, func() { p.pressure("critical") })
	p.at(4*time.Minute, func() { require.Equal(t, []int{3, 2}, p.status().Parked) })
	p.at(6*time.Minute, func() {
		require.Empty(t, p.status().Parked)
		require.Equal(t, 4, p.status().Ready)
	})
	p.stopAt(7 * time.Minute)
	p.play(poolOf(4))
}

func TestAHostShortOfMemoryReplacesItsLargestWorkerOnceAMinute(t *testing.T) {
	p := newTroupe(t)
	p.at(4*time.Second, p.onOneHost)
	for s := 5; s <= 45; s += 10 {
		p.at(time.Duration(s)*time.Second, func() { p.pressure("high") })
	}
	p.stopAt(50 * time.Second)
	p.play(poolOf(3))
	require.Empty(t, p.actors[0].heard)
	require.Empty(t, p.actors[1].heard)
	require.Len(t, p.actors[2].heard, 1)
	r := p.actors[2].heard[0].message.(api.Restart)
	require.True(t, r.InPlace, "there is no memory for two")
	require.Equal(t, api.CausePressure, r.Cause)
}

func TestPressureIsOnlyRecordedWhereThePolicySaysSo(t *testing.T) {
	p := newTroupe(t)
	run := poolOf(4)
	run.Spec.Policy.Mode = "observe"
	p.at(4*time.Second, p.onOneHost)
	p.at(5*time.Second, func() { p.pressure("critical") })
	p.at(20*time.Second, func() { require.Equal(t, 4, p.status().Ready) })
	p.stopAt(30 * time.Second)
	p.play(run)
	for i := range 4 {
		require.Empty(t, p.actors[i].heard)
	}
}

func TestABudgetIsSharedOutOnEachHostInItsRhythm(t *testing.T) {
	for _, every := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprintf("a new run every %d turns", every), func(t *testing.T) {
			p := newTroupe(t)
			run := poolOf(3)
			run.ContinueEvery = every
			run.Spec.Resources.Allocation = "equal"
			p.sharing = func(r api.RebalanceRequest) (api.RebalanceResult, error) {
				if len(r.Processes) == 1 {
					return api.RebalanceResult{}, errors.New("it does not want to")
				}
				var result api.RebalanceResult
				for _, one := range r.Processes {
					result.Shares = append(result.Shares, api.Share{Process: one, MemoryBytes: 100, Applied: r.Apply})
				}
				return result, nil
			}
			p.at(4*time.Second, func() {
				for i, a := range p.actors {
					a.entry.Host = []string{"a", "a", "b"}[i]
					a.tell(lifecycle.Ready)
				}
			})
			p.at(time.Minute, func() {
				require.Equal(t, 2, p.rebalances())
				s := p.status()
				require.Len(t, s.Shares, 2)
				require.Equal(t, "t/0", s.Shares[0].Worker)
				require.True(t, s.Shares[1].Applied)
				require.Contains(t, s.AllocationProblem, "host b did not share its budget out: it does not want to")
			})
			p.at(11*time.Minute, func() { require.Equal(t, 6, p.rebalances(), "every five minutes") })
			p.stopAt(12 * time.Minute)
			p.play(run)
			for i, times := range []int{1, 1, 0} {
				require.Len(t, p.actors[i].heardOf(api.SignalLimitsApplied), times, "worker %d, whose share never changes", i)
			}
		})
	}
}
