package pool

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// followingPool is a pool of size workers that follows the demand.
func followingPool(size, most int) Run {
	run := poolOf(size)
	run.Spec.Scale = spec.Default().Scale
	run.Spec.Scale.Max, run.Spec.Scale.TargetInflight = most, 1
	run.Spec.Scale.DownAfter = spec.Duration(5 * time.Minute)
	return run
}

// withRedis is the spec with its sessions in a store that all hosts read.
func withRedis(s spec.Spec) spec.Spec {
	s.Sessions.Store, s.Sessions.URL = spec.StoreRedis, "redis://localhost"
	return s
}

// demandAt reports the demand of a host at a time.
func (p *fakePool) demandAt(when time.Duration, host string, epoch int64, load float64) {
	p.signalAt(when, api.SignalDemand,
		api.Demand{Host: host, Epoch: epoch, Load: load, ExpiryMS: time.Hour.Milliseconds()})
}

func (p *fakePool) requireNumbersAt(when time.Duration, want []int, why string) {
	p.At(when, func() { require.Equal(p.t, want, p.numbers(), why) })
}

func TestAPoolFollowsTheDemandOfAllHosts(t *testing.T) {
	throughRuns(t, []int{0, 1, 2, 5}, func(t *testing.T, p *fakePool) {
		p.leases = map[int]bool{}
		p.demandAt(10*time.Second, "a", 1, 3)
		p.requireNumbersAt(12*time.Second, []int{0, 1, 2}, "one host wants three")
		p.demandAt(15*time.Second, "b", 1, 2.5)
		p.requireNumbersAt(20*time.Second, []int{0, 1, 2, 3, 4, 5}, "both want more together")
		p.demandAt(30*time.Second, "b", 1, 50)
		p.At(40*time.Second, func() {
			require.Len(t, p.numbers(), 8)
			s := p.status().Scale
			require.Equal(t, 8, s.Wanted)
			require.Contains(t, s.Reason, "more than scale.max = 8")
			require.Len(t, s.Demand, 2)
			require.Equal(t, 6, s.Decisions[len(s.Decisions)-1].From)
		})
		p.demandAt(time.Minute, "b", 1, 0)
		p.demandAt(time.Minute, "a", 1, 1)
		p.At(70*time.Second, func() {
			p.setLeases(map[int]bool{0: false, 1: true, 2: false, 7: false})
		})
		p.requireNumbersAt(6*time.Minute-time.Second, []int{0, 1, 2, 3, 4, 5, 6, 7}, "not before down_after")
		p.At(6*time.Minute+30*time.Second, func() {
			require.Equal(t, []int{1, 3, 4, 5, 6}, p.numbers(), "those without a lease go, never the highest numbers as a rule")
			require.Contains(t, p.status().Scale.Reason, "but clients have leased all")
			require.Equal(t, api.ScaleCauseLeased, p.status().Scale.Cause)
			require.Equal(t, 5, p.open())
		})
		p.At(7*time.Minute, func() {
			leases := maps.Clone(p.leasesNow())
			leases[4] = false
			p.setLeases(leases)
		})
		p.At(20*time.Minute, func() { require.Equal(t, []int{1, 3, 5, 6}, p.numbers()) })
		p.runUntil(21*time.Minute, followingPool(2, 8))
		require.Zero(t, p.open())
	})
}

func TestAnOutageOfTemporalIsNoLackOfDemand(t *testing.T) {
	p := newFakePool(t)
	p.leases = map[int]bool{0: false, 1: false, 2: false}
	p.demandAt(10*time.Second, "a", 1, 3)
	p.At(59*time.Second, func() { p.away = time.Hour })
	p.demandAt(time.Minute, "a", 1, 2)
	p.At(65*time.Minute, func() { p.away = 0 })
	p.At(66*time.Minute+30*time.Second, func() { // half a minute after the overdue timer
		require.Len(t, p.numbers(), 3, "the demand was low for a moment")
		require.Len(t, p.status().Scale.Demand, 1, "its host may report again")
	})
	p.demandAt(67*time.Minute, "a", 1, 2)
	p.At(73*time.Minute, func() { require.Len(t, p.numbers(), 2) })
	p.runUntil(74*time.Minute, followingPool(3, 3))
}

func TestDemandEndsWithItsHost(t *testing.T) {
	p := newFakePool(t)
	p.leases = map[int]bool{0: false, 1: false, 2: false, 3: false}
	p.demandAt(10*time.Second, "lost", 3, 4)
	p.signalAt(20*time.Second, api.SignalDemand, api.Demand{Host: "lost", Epoch: 2, Load: 0})
	p.requireNumbersAt(30*time.Minute, []int{0, 1, 2, 3}, "the end of an older epoch ends nothing")
	p.At(58*time.Minute, func() { require.Len(t, p.status().Scale.Demand, 1) })
	p.At(61*time.Minute, func() { require.Empty(t, p.status().Scale.Demand, "it has expired") })
	p.At(70*time.Minute, func() { require.Len(t, p.numbers(), 1) })
	p.runUntil(71*time.Minute, followingPool(1, 4))
	require.Len(t, p.emitted, 4, "an event for each change of size, up at once and down one by one")
	for i, sizes := range []string{`"from":1,"to":4`, `"from":4,"to":3`, `"from":3,"to":2`, `"from":2,"to":1`} {
		require.Contains(t, p.emitted[i], `pool.scaled {`+sizes+`,"reason":"`)
	}
}

func TestThePoolGoesToZeroAndBack(t *testing.T) {
	p := newFakePool(t)
	p.leases = map[int]bool{0: false}
	p.demandAt(10*time.Second, "a", 1, 1)
	p.demandAt(20*time.Second, "a", 1, 0)
	p.requireNumbersAt(10*time.Minute, []int{0}, "not before idle_to_zero")
	p.At(11*time.Minute, func() {
		require.Empty(t, p.status().Workers)
		require.True(t, p.status().ScaledToZero())
		require.Zero(t, p.open())
	})
	p.demandAt(12*time.Hour, "a", 1, 1)
	p.At(12*time.Hour+10*time.Second, func() {
		require.Equal(t, []int{0}, p.numbers())
		require.Equal(t, 1, p.status().Ready)
		require.False(t, p.status().ScaledToZero() && p.workers[0].entry.Endpoint != "")
		require.Greater(t, p.workers[0].entry.Incarnation, int64(1))
	})
	p.At(13*time.Hour, func() { p.env.SignalWorkflow(api.SignalSessionStoreClaimed, api.SessionStoreClaim{Host: "a"}) })
	p.demandAt(13*time.Hour+time.Second, "a", 1, 0)
	p.At(15*time.Hour, func() {
		require.Equal(t, []int{0}, p.numbers(), "sessions cannot move")
		require.Contains(t, p.status().Scale.Reason, "stores the sessions")
		require.Equal(t, api.ScaleCauseSessions, p.status().Scale.Cause)
	})
	run := followingPool(1, 4)
	run.Spec.Scale.IdleToZero = spec.Duration(10 * time.Minute)
	p.UpdateAt(15*time.Hour+time.Second, api.UpdateApply, api.ApplyRequest{Spec: withRedis(run.Spec)})
	p.At(16*time.Hour, func() { require.Empty(t, p.numbers(), "another store has the sessions") })
	p.runUntil(17*time.Hour, run)
}

func TestObserveOnlyRecordsTheSize(t *testing.T) {
	p := newFakePool(t)
	for i := range 10 {
		p.demandAt(time.Duration(10+i)*time.Second, "a", 1, float64(3+i%2))
	}
	p.At(time.Minute, func() {
		require.Equal(t, []int{0}, p.numbers())
		require.Len(t, p.status().Scale.Decisions, 10)
		require.True(t, p.status().Scale.Decisions[0].Observed)
	})
	run := followingPool(1, 4)
	run.Spec.Policy.Mode = spec.PolicyObserve
	p.runUntil(2*time.Minute, run)
}

func TestScaleSetsTheSizeWithinTheBoundsAndTheBounds(t *testing.T) {
	p := newFakePool(t)
	p.leases = map[int]bool{0: false, 1: false, 2: false, 3: false,
		4: false, 5: false}
	tooLarge := p.UpdateAt(5*time.Second, api.UpdateScale, api.ScaleRequest{Size: 5})
	size := p.UpdateAt(6*time.Second, api.UpdateScale, api.ScaleRequest{Size: 4})
	p.requireNumbersAt(4*time.Minute, []int{0, 1, 2, 3}, "the size stays for down_after")
	p.At(6*time.Minute, func() { require.Len(t, p.numbers(), 1, "the demand continues from there") })
	wrong := p.UpdateAt(7*time.Minute, api.UpdateScale, api.ScaleRequest{Bounds: &api.ScaleBounds{Min: 5, Max: 4}})
	bounds := p.UpdateAt(8*time.Minute, api.UpdateScale, api.ScaleRequest{Bounds: &api.ScaleBounds{Min: 3, Max: 6}})
	p.At(9*time.Minute, func() { require.Len(t, p.numbers(), 3, "the new minimum counts at once") })
	off := p.UpdateAt(10*time.Minute, api.UpdateScale, api.ScaleRequest{Bounds: &api.ScaleBounds{}})
	p.At(11*time.Minute, func() {
		require.Len(t, p.numbers(), 4, "the size that was set last")
		require.Nil(t, p.status().Scale)
		require.NoError(t, func() error { s := p.status().Spec; return s.Validate() }())
		require.Zero(t, p.workers[0].timesOf(api.SignalRestart))
	})
	p.runUntil(12*time.Minute, followingPool(1, 4))
	requireRefused(t, tooLarge, api.CodeInvalid)
	requireRefused(t, wrong, api.CodeInvalid)
	require.Equal(t, api.ScaleResult{From: 1, To: 4, Bounds: &api.ScaleBounds{Max: 4}}, size.Value)
	require.Equal(t, api.ScaleResult{From: 1, To: 3, Bounds: &api.ScaleBounds{Min: 3, Max: 6}}, bounds.Value)
	require.Equal(t, api.ScaleResult{From: 3, To: 4}, off.Value)
}

func TestAWorkerThatWasReservedStaysIfItIsWantedAgain(t *testing.T) {
	update := func(name string, request any) func(p *fakePool) {
		return func(p *fakePool) { p.Update(name, request) }
	}
	observing := followingPool(2, 4).Spec
	observing.Policy.Mode = spec.PolicyObserve
	for name, c := range map[string]struct {
		meanwhile func(p *fakePool)
		numbers   []int
	}{
		"the demand grows": {func(p *fakePool) {
			p.env.SignalWorkflow(api.SignalDemand, api.Demand{Host: "a", Load: 2, ExpiryMS: 1000 * 3600})
		}, []int{0, 1}},
		"a size is set":      {update(api.UpdateScale, api.ScaleRequest{Size: 3}), []int{0, 1, 2}},
		"it follows no more": {update(api.UpdateApply, api.ApplyRequest{Spec: poolOf(2).Spec}), []int{0, 1}},
		"it only observes":   {update(api.UpdateApply, api.ApplyRequest{Spec: observing}), []int{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFakePool(t)
			p.leases = map[int]bool{0: false, 1: false}
			p.reserved = func() { c.meanwhile(p) }
			p.At(6*time.Minute, func() {
				require.Equal(t, c.numbers, p.numbers())
				returned := append(p.workers[0].timesOf(api.SignalCheckin), p.workers[1].timesOf(api.SignalCheckin)...)
				require.Len(t, returned, 1)
				for _, w := range p.workers {
					require.Equal(t, lifecycle.Ready, w.entry.State)
				}
			})
			p.runUntil(7*time.Minute, followingPool(2, 4))
		})
	}
}
