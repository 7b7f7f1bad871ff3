package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// pressure is the word of host "h", on which all workers are; worker i uses (i+1) × 100 MB.
func (p *fakePool) pressure(level string) {
	m := api.MemoryPressure{Host: "h", Level: level, Reason: "Memory pressure is " + level + "."}
	for i, a := range p.workers {
		m.Workers = append(m.Workers, api.WorkerMemory{Slot: i, Incarnation: a.entry.Incarnation,
			MemoryBytes: int64(i+1) * 100_000_000})
	}
	p.env.SignalWorkflow(api.SignalMemoryPressure, m)
}

func (p *fakePool) onOneHost() { p.placeOn("h") }

func TestACriticalHostLosesHalfOfItsWorkersLargestFirstUntilItHasMemoryAgain(t *testing.T) {
	p := newFakePool(t)
	p.At(4*time.Second, p.onOneHost)
	for s := 5; s <= 30; s += 5 { // said again and again, done once
		p.At(time.Duration(s)*time.Second, func() { p.pressure("critical") })
	}
	p.At(31*time.Second, func() { p.workers[4].rest(lifecycle.Failed, "an operator has started it, in vain") })
	p.At(32*time.Second, func() {
		require.Equal(t, []int{4, 3}, p.status().StoppedForMemory)
		require.Equal(t, 3, p.status().Ready)
		require.Contains(t, p.workers[4].received[0].message.(api.Order).Reason, "500 MB")
		require.Equal(t, api.ReasonMemoryPressure, p.status().Workers[3].ReasonCode)
		require.Equal(t, api.ReasonGaveUp, p.status().Workers[4].ReasonCode)
		p.pressure("medium")
	})
	p.At(40*time.Second, func() {
		require.Empty(t, p.status().StoppedForMemory)
		require.Equal(t, 5, p.status().Ready)
	})
	p.runUntil(time.Minute, poolOf(5))
}

// The pool restarts what it has stopped, and no worker that an operator wants down, or that has been started since.
func TestTheEndOfMemoryPressureOverrulesNoOperator(t *testing.T) {
	p := newFakePool(t)
	p.At(4*time.Second, p.onOneHost)
	p.At(5*time.Second, func() { p.pressure("critical") })
	p.At(10*time.Second, func() {
		require.Equal(t, []int{7, 6, 5, 4}, p.status().StoppedForMemory)
		require.Equal(t, api.CausePressure, p.workers[7].received[0].message.(api.Order).Cause)
		p.workers[7].stopDirectly()
		p.workers[6].reportGone() // the pool starts its workflow again
		p.Update(api.UpdateRestart, api.RestartRequest{Worker: &p.workers[5].run.Slot})
	})
	p.At(15*time.Second, func() {
		require.Equal(t, []int{4}, p.status().StoppedForMemory)
		p.pressure("medium")
	})
	p.At(30*time.Second, func() {
		require.Equal(t, 7, p.status().Ready)
		require.Equal(t, lifecycle.Stopped, p.status().Workers[7].State)
		require.Empty(t, p.workers[6].received)
		require.Len(t, p.workers[5].timesOf(api.SignalRestart), 1, "an operator's")
	})
	p.runUntil(time.Minute, poolOf(8))
}

// What the pool stops during a rollout keeps the memory free until the pressure is over.
func TestARolloutLeavesAWorkerDownThatIsStoppedForMemory(t *testing.T) {
	p := newFakePool(t)
	p.At(4*time.Second, p.onOneHost)
	p.UpdateAt(5*time.Second, api.UpdateRestart, api.RestartRequest{})
	p.At(5*time.Second+stepDuration/2, func() { p.pressure("critical") })
	p.At(20*time.Second, func() {
		require.Nil(t, p.status().Rollout)
		require.Equal(t, []int{3}, p.status().StoppedForMemory)
		require.Equal(t, 3, p.status().Ready)
	})
	p.runUntil(time.Minute, poolOf(4))
}

// They keep their spec as those that wait for the rollout do.
func TestTheEndOfMemoryPressureHandsOutNoSpecThatHasFailed(t *testing.T) {
	p := newFakePool(t)
	p.At(4*time.Second, p.onOneHost)
	p.At(5*time.Second, func() { p.pressure("critical") })
	p.UpdateAt(10*time.Second, api.UpdateApply, api.ApplyRequest{Spec: specOf(4, neverStarts)})
	p.At(20*time.Second, func() {
		require.NotEmpty(t, p.status().Rollout.Halted)
		p.pressure("medium")
	})
	p.At(30*time.Second, func() {
		require.Equal(t, []string{"0 failed #2 v2", "1 ready #1 v1", "2 ready #2 v1", "3 ready #2 v1"}, slotsOf(p.status()))
	})
	p.runUntil(time.Minute, poolOf(4))
}

// Nor does it one that a rollout has not tried yet; they get it at their turn.
func TestTheEndOfMemoryPressureOvertakesNoRollout(t *testing.T) {
	p := newFakePool(t)
	p.At(4*time.Second, p.onOneHost)
	p.At(5*time.Second, func() { p.pressure("critical"); p.workers[0].unresponsive = true })
	p.UpdateAt(10*time.Second, api.UpdateApply, api.ApplyRequest{Spec: specOf(4, "next")})
	p.At(20*time.Second, func() {
		require.Equal(t, []int{0}, p.status().Rollout.Current)
		p.pressure("medium")
	})
	p.At(30*time.Second, func() {
		require.Equal(t, []int{1, 3, 2}, p.status().Rollout.Waiting)
		require.Equal(t, []string{"0 ready #1 v1", "1 ready #1 v1", "2 ready #2 v1", "3 ready #2 v1"}, slotsOf(p.status()))
	})
	p.At(10*time.Minute, func() {
		require.Nil(t, p.status().Rollout)
		require.Equal(t, []string{"0 ready #1 v1", "1 ready #2 v2", "2 ready #3 v2", "3 ready #3 v2"}, slotsOf(p.status()))
	})
	p.runUntil(11*time.Minute, poolOf(4))
}

// It comes back when its host falls silent.
func TestWhatWasStoppedStaysSoAfterAnOutageOfTemporalUntilItsHostHadTimeToReport(t *testing.T) {
	p := newFakePool(t)
	p.At(4*time.Second, func() { p.onOneHost(); p.away = 4 * time.Minute })
	p.At(5*time.Second, func() { p.pressure("critical") })
	p.At(9*time.Minute, func() { p.away = 0 })
	p.At(9*time.Minute+6*time.Second, func() { p.pressure("critical") }) // a second after the overdue timer
	p.At(14*time.Minute, func() {
		require.Equal(t, []int{3, 2}, p.status().StoppedForMemory)
		require.Len(t, p.workers[3].received, 1, "only the order to stop")
	})
	p.At(15*time.Minute, func() {
		require.Empty(t, p.status().StoppedForMemory, "it fell silent")
		require.Equal(t, 4, p.status().Ready)
	})
	p.runUntil(16*time.Minute, poolOf(4))
}

func TestAHostShortOfMemoryReplacesItsLargestWorkerOnceAMinute(t *testing.T) {
	p := newFakePool(t)
	p.At(4*time.Second, p.onOneHost)
	for s := 5; s <= 45; s += 10 {
		p.At(time.Duration(s)*time.Second, func() { p.pressure("high") })
	}
	p.runUntil(50*time.Second, poolOf(3))
	require.Empty(t, p.workers[0].received)
	require.Empty(t, p.workers[1].received)
	require.Len(t, p.workers[2].received, 1)
	r := p.workers[2].received[0].message.(api.Order)
	require.True(t, r.InPlace, "there is no memory for two")
	require.Equal(t, api.CausePressure, r.Cause)
}

func TestPressureIsOnlyRecordedWhereThePolicySaysSo(t *testing.T) {
	p := newFakePool(t)
	run := poolOf(4)
	run.Spec.Policy.Mode = "observe"
	p.At(4*time.Second, p.onOneHost)
	p.At(5*time.Second, func() { p.pressure("critical") })
	p.At(20*time.Second, func() { require.Equal(t, 4, p.status().Ready) })
	p.runUntil(30*time.Second, run)
	for i := range 4 {
		require.Empty(t, p.workers[i].received)
	}
}
