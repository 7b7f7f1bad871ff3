package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
)

// stopDirectly is an operator's stop, which a worker gets without its pool.
func (a *fakeWorker) stopDirectly() {
	a.generation++
	a.entry.RestOrderedAt = a.fakePool.env.Now()
	a.report(lifecycle.Stopping)
	a.then(stepDuration, func() { a.rest(lifecycle.Stopped, "stopped") })
}

func TestARolloutLeavesAWorkerDownThatIsStoppedAfterItsBegin(t *testing.T) {
	p := newFakePool(t)
	p.At(5*time.Second, func() { p.workers[3].stopDirectly() })
	p.UpdateAt(10*time.Second, api.UpdateRestart, api.RestartRequest{Reason: "new moon"})
	p.At(10*time.Second+stepDuration/2, func() {
		require.True(t, p.workers[0].restarting)
		for _, number := range []int{0, 1, 4} {
			p.workers[number].stopDirectly()
		}
	})
	p.At(60*time.Second, func() {
		st := p.status()
		require.Nil(t, st.Rollout)
		require.Equal(t, []string{"0 stopped #1 v1", "1 stopped #1 v1", "2 ready #2 v1", "3 ready #2 v1", "4 stopped #1 v1"},
			slotsOf(st), "3 was stopped before")
		p.Update(api.UpdateRestart, api.RestartRequest{Reason: "and now"})
	})
	p.At(2*time.Minute, func() {
		require.Equal(t, []string{"0 ready #2 v1", "1 ready #2 v1", "2 ready #3 v1", "3 ready #3 v1", "4 ready #2 v1"},
			slotsOf(p.status()))
	})
	p.runUntil(3*time.Minute, poolOf(5))
}

// Temporal does not keep the order of signals to another workflow.
func TestADrainDoesNotOvertakeARestart(t *testing.T) {
	p := newFakePool(t)
	p.At(10*time.Second, func() {
		p.slowSignals = 2 * time.Second
		p.Update(api.UpdateRestart, api.RestartRequest{Worker: number(0)})
	})
	p.At(11*time.Second, func() {
		p.slowSignals = 0
		p.Update(api.UpdateDrain, api.Control{Worker: number(0), Reason: "new disk"})
	})
	p.At(30*time.Second, func() { require.Equal(t, lifecycle.Stopped, p.status().Workers[0].State) })
	p.runUntil(time.Minute, poolOf(1))
}

func TestARestartOfTheWorkersOfAHostLeavesTheOthersAndKeepsARollout(t *testing.T) {
	p := newFakePool(t)
	var during *workflowtest.UpdateResult
	p.At(5*time.Second, func() { p.placeOn("a", "b") })
	none := p.UpdateAt(6*time.Second, api.UpdateRestart, api.RestartRequest{Host: "c"})
	some := p.UpdateAt(6*time.Second, api.UpdateRestart, api.RestartRequest{Host: "a"})
	p.At(time.Minute, func() {
		require.Equal(t, []string{"0 ready #2 v1", "1 ready #1 v1", "2 ready #2 v1"}, slotsOf(p.status()))
		p.Update(api.UpdateRestart, api.RestartRequest{})
		during = p.Update(api.UpdateRestart, api.RestartRequest{Host: "a"})
	})
	p.At(2*time.Minute, func() {
		require.EqualValues(t, 2, p.status().Workers[1].Incarnation, "the rollout that was under way goes on")
	})
	p.signalAt(3*time.Minute, api.SignalSessionStoreClaimed, api.SessionStoreClaim{Host: "a"})
	bound := p.UpdateAt(3*time.Minute+time.Second, api.UpdateRestart, api.RestartRequest{Host: "a"})
	p.UpdateAt(3*time.Minute+2*time.Second, api.UpdateApply, api.ApplyRequest{Spec: withRedis(poolOf(3).Spec)})
	moved := p.UpdateAt(5*time.Minute, api.UpdateRestart, api.RestartRequest{Host: "a"})
	p.runUntil(6*time.Minute, poolOf(3))
	require.ErrorContains(t, bound.Err, "cannot leave host a")
	require.NoError(t, moved.Err)
	require.Equal(t, api.RestartResult{Workers: []int{0, 2}}, moved.Value)
	require.Equal(t, api.RestartResult{Workers: []int{}}, none.Value)
	require.Equal(t, api.RestartResult{Workers: []int{0, 2}}, some.Value)
	require.Equal(t, api.RestartResult{Workers: []int{0, 2, 1}}, during.Value)
}
