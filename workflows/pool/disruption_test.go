package pool

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// signalAt has the pool get a signal at a time.
func (p *fakePool) signalAt(when time.Duration, name string, message any) {
	p.At(when, func() { p.env.SignalWorkflow(name, message) })
}

// requestRotationAt has a worker ask for a turn at a time.
func (p *fakePool) requestRotationAt(when time.Duration, number int) {
	p.signalAt(when, api.SignalRotationRequest,
		api.RotationRequest{Slot: number, Incarnation: 1, Cause: api.CauseUptime, Reason: "it is old"})
}

func TestConcurrentRotationRequestsAreGrantedOneByOne(t *testing.T) {
	for _, budget := range []int{1, 2} {
		t.Run(fmt.Sprintf("max_unavailable %d", budget), func(t *testing.T) {
			throughRuns(t, []int{0, 1, 2, 3, 5}, func(t *testing.T, p *fakePool) {
				run := poolOf(6)
				run.Spec.Rotation.MaxUnavailable = budget
				for i := range 6 {
					p.requestRotationAt(5*time.Second, i)
					p.requestRotationAt(5*time.Second+500*time.Millisecond, i) // said twice, meant once
				}
				p.At(time.Minute, func() {
					require.Equal(t, []string{"0 ready #2 v1", "1 ready #2 v1", "2 ready #2 v1", "3 ready #2 v1", "4 ready #2 v1",
						"5 ready #2 v1"}, slotsOf(p.status()))
				})
				p.runUntil(2*time.Minute, run)
				require.Equal(t, budget, p.peak)
			})
		})
	}
}

func TestAFailedRotationFreesTheBudgetForTheNext(t *testing.T) {
	p := newFakePool(t)
	p.requestRotationAt(5*time.Second, 0)
	p.At(5*time.Second+20*time.Millisecond, func() { // granted: now it fails
		p.workers[0].generation++
		p.workers[0].restarting = false
		p.workers[0].report(lifecycle.Ready)
		p.env.SignalWorkflow(api.SignalRotationDone,
			api.RotationDone{Slot: 0, Incarnation: 1, Failed: true, Reason: "no memory"})
	})
	p.requestRotationAt(6*time.Second, 1)
	p.At(10*time.Second, func() {
		require.Equal(t, []string{"0 ready #1 v1", "1 ready #2 v1"}, slotsOf(p.status()))
	})
	p.runUntil(20*time.Second, poolOf(2))
}

func TestARolloutHaltsWhenASuccessorCannotStartAndTheWorkerServesOn(t *testing.T) {
	for _, build := range []string{"this", "an earlier"} {
		t.Run(build+" build", func(t *testing.T) {
			p := newFakePool(t)
			p.UpdateAt(5*time.Second, api.UpdateApply, api.ApplyRequest{Spec: specOf(3, "next")})
			p.At(5*time.Second+50*time.Millisecond, func() {
				p.workers[0].generation++
				p.workers[0].report(lifecycle.Ready)
				done := api.RotationDone{Slot: 0, Incarnation: 1, Failed: true, Reason: "the model file is missing"}
				if build == "this" {
					done.Restart = p.workers[0].run.LastRestart
					require.NotEmpty(t, done.Restart)
				}
				p.env.SignalWorkflow(api.SignalRotationDone, done)
			})
			p.At(20*time.Second, func() {
				s := p.status()
				require.Contains(t, s.Rollout.Halted, "the model file is missing")
				require.Equal(t, 3, s.Ready)
				require.Equal(t, []int{1, 2}, s.Rollout.Waiting)
			})
			p.runUntil(30*time.Second, poolOf(3))
		})
	}
}

// An operator halts a rollout: the worker that restarts goes on, the others stay as they are, and it is no problem. A
// worker that then does not come back is one. A halted rollout holds no worker back from a rotation. An apply of the
// same spec begins it again, also with another size.
func TestAnOperatorHaltsARollout(t *testing.T) {
	for _, starts := range []bool{true, false} {
		t.Run(fmt.Sprintf("the worker starts %v", starts), func(t *testing.T) {
			p := newFakePool(t)
			command, reason := "next", "halted: odd answers (by ada)"
			if !starts {
				command, reason = neverStarts, "halted: worker 0 did not come back: the model file is missing"
			}
			none := p.UpdateAt(4*time.Second, api.UpdateHaltRollout, api.Control{})
			p.UpdateAt(5*time.Second, api.UpdateApply, api.ApplyRequest{Spec: specOf(3, command)})
			done := p.UpdateAt(5*time.Second+10*time.Millisecond, api.UpdateHaltRollout,
				api.Control{Reason: "odd answers", By: "ada"})
			again := p.UpdateAt(5*time.Second+10*time.Millisecond, api.UpdateHaltRollout, api.Control{})
			p.At(20*time.Second, func() {
				s := p.status()
				require.Equal(t, reason, s.Rollout.Halted)
				require.Equal(t, starts, s.Rollout.ByOperator)
				require.Equal(t, []int{1, 2}, s.Rollout.Waiting)
				require.Empty(t, s.Rollout.Current)
				require.Equal(t, !starts, s.Rollout.Failed())
			})
			p.requestRotationAt(21*time.Second, 1)
			p.At(50*time.Second, func() { require.EqualValues(t, 2, p.status().Workers[1].Incarnation) })
			larger := p.UpdateAt(50*time.Second, api.UpdateApply, api.ApplyRequest{Spec: specOf(4, command)})
			same := p.UpdateAt(50*time.Second, api.UpdateApply, api.ApplyRequest{Spec: specOf(4, command)})
			p.At(70*time.Second, func() { require.Equal(t, starts, p.status().Rollout == nil) })
			p.runUntil(80*time.Second, poolOf(3))
			require.Equal(t, api.ApplyResult{SpecVersion: 2, Changed: true}, larger.Value)
			require.Equal(t, api.ApplyResult{SpecVersion: 2}, same.Value, "its rollout has not halted")
			require.ErrorContains(t, none.Rejected, "no rolling restart for which")
			require.ErrorContains(t, again.Rejected, "no rolling restart for which")
			require.NoError(t, done.Err)
		})
	}
}

func TestARolloutTakesAPendingWorkerAlongUnderTheNumberItHas(t *testing.T) {
	p := newFakePool(t)
	p.At(5*time.Second, func() {
		p.workers[0].generation++
		p.workers[0].entry.Incarnation = 2
		p.workers[0].report(lifecycle.Pending)
	})
	p.UpdateAt(6*time.Second, api.UpdateApply, api.ApplyRequest{Spec: specOf(2, "next")})
	p.At(6*time.Second+100*time.Millisecond, func() { // it does not drain, and starts under its number
		p.workers[0].generation++
		p.workers[0].entry.SpecVersion, p.workers[0].entry.Begun = 2, p.workers[0].run.LastRestart
		p.workers[0].report(lifecycle.Ready)
	})
	p.At(30*time.Second, func() {
		require.Nil(t, p.status().Rollout)
		require.Equal(t, []string{"0 ready #2 v2", "1 ready #2 v2"}, slotsOf(p.status()))
	})
	p.runUntil(time.Minute, poolOf(2))
}

func TestARolloutPassesOverAWorkerThatHasNoCapacity(t *testing.T) {
	p := newFakePool(t)
	p.At(5*time.Second, func() {
		p.Update(api.UpdateRestart, api.RestartRequest{Reason: "new model"})
		p.workers[0].noCapacity = true
	})
	p.At(7*time.Second, func() {
		require.Equal(t, []int{0}, p.status().Rollout.NoCapacity, "its status says which worker has no room")
		require.Equal(t, []int{1}, p.status().Rollout.Current)
	})
	p.At(10*time.Minute, func() {
		st := p.status()
		require.Nil(t, st.Rollout, "the rollout is done")
		require.Equal(t, []string{"0 pending #2 v1", "1 ready #2 v1", "2 ready #2 v1"}, slotsOf(st))
	})
	p.runUntil(11*time.Minute, poolOf(3))
}

// TestARolloutPassesByAWorkerThatCannotRestartYet: it has the permission to rotate, and has not used it.
func TestARolloutPassesByAWorkerThatCannotRestartYet(t *testing.T) {
	p := newFakePool(t)
	run := poolOf(3)
	run.Spec.Watch.Paths, run.Spec.Watch.Mode = []string{"."}, spec.WatchAll
	p.At(5*time.Second, func() { p.workers[0].unresponsive = true })
	p.requestRotationAt(10*time.Second, 0)
	p.signalAt(12*time.Second, api.SignalFilesChanged, api.FilesChanged{Pool: "t", Host: "h", Files: []string{"main.py"}})
	p.At(40*time.Second, func() {
		require.Equal(t, []int{0}, p.status().Rollout.Waiting)
		require.Equal(t, []string{"1 ready #2 v1", "2 ready #2 v1"}, slotsOf(p.status())[1:])
	})
	p.runUntil(time.Minute, run)
}
