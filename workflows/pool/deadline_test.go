package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/worker"
)

func TestAGrantThatIsNotUsedDoesNotKeepOthersFromRotating(t *testing.T) {
	p := newFakePool(t)
	run := poolOf(3)
	timeout := worker.GrantTimeout(run.Spec) + grantMargin
	p.At(5*time.Second, func() { p.workers[0].unresponsive = true })
	for at := 10 * time.Second; at < timeout+10*time.Minute; at += 5 * time.Minute {
		p.requestRotationAt(at, 0)
		p.requestRotationAt(at+time.Second, 1)
		p.requestRotationAt(at+2*time.Second, 2)
	}
	p.At(timeout-time.Second, func() {
		require.NotEmpty(t, p.workers[0].timesOf(api.SignalRotationGrant))
		require.Empty(t, p.workers[1].timesOf(api.SignalRotationGrant), "one at a time")
	})
	p.At(timeout+10*time.Minute, func() {
		require.Equal(t, []string{"1 ready #2 v1", "2 ready #2 v1"}, slotsOf(p.status())[1:])
	})
	p.runUntil(timeout+20*time.Minute, run)
}

func TestARolloutPassesOverAWorkerThatDoesNotBeginToRestart(t *testing.T) {
	for state, begin := range map[lifecycle.State]func(*fakeWorker){
		lifecycle.Ready:   func(*fakeWorker) {},
		lifecycle.Stopped: func(a *fakeWorker) { a.rest(lifecycle.Stopped, "stopped by hand") },
	} {
		t.Run(string(state), func(t *testing.T) {
			p := newFakePool(t)
			run := poolOf(3)
			timeout := worker.GrantTimeout(run.Spec) + grantMargin
			p.At(5*time.Second, func() {
				p.workers[1].unresponsive = true
				begin(p.workers[1])
			})
			p.UpdateAt(10*time.Second, api.UpdateRestart, api.RestartRequest{Reason: "new moon"})
			p.At(timeout, func() {
				require.Equal(t, []int{1}, p.status().Rollout.Current)
				require.Equal(t, []int{2}, p.status().Rollout.Waiting)
			})
			p.At(timeout+13*time.Second, func() { require.Equal(t, []int{1}, p.status().Rollout.Overdue) })
			p.At(timeout+30*time.Second, func() {
				require.Nil(t, p.status().Rollout)
				require.Equal(t, []string{"1 " + string(state) + " #1 v1", "2 ready #2 v1"}, slotsOf(p.status())[1:])
			})
			p.runUntil(timeout+time.Minute, run)
		})
	}
}

func TestAWorkerThatTestsTheBreakerForTooLongMakesWayForAnother(t *testing.T) {
	p := newFakePool(t)
	run := poolOf(3)
	pending := func(number int) {
		w := p.workers[number]
		w.generation++
		w.entry.Incarnation = 2
		w.report(lifecycle.Pending)
	}
	p.At(5*time.Second, func() {
		pending(0)
		p.workers[1].entry.Starts, p.workers[1].entry.StartsFailed = 7, 6
		pending(1)
	})
	p.requestStartAt(10*time.Second, 0)
	for at := 11 * time.Second; at < 30*time.Minute; at += 10 * time.Minute {
		p.requestStartAt(at, 1)
	}
	p.requestStartAt(time.Minute, 0)
	p.At(10*time.Minute, func() {
		require.Len(t, p.workers[0].timesOf(api.SignalStartPermitted), 2, "the first permit may be lost")
		require.Empty(t, p.workers[1].timesOf(api.SignalStartPermitted))
	})
	p.At(25*time.Minute, func() { require.Len(t, p.workers[1].timesOf(api.SignalStartPermitted), 1) })
	p.runUntil(30*time.Minute, run)
}
