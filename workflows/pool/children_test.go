package pool

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/workflows/worker"
)

func TestAWorkerTerminatedWhileItsStartsFailedSkipsUnreportedNumbers(t *testing.T) {
	p := newFakePool(t)
	p.At(5*time.Second, func() { p.workers[0].report(lifecycle.Pending) })
	p.At(6*time.Second, func() { p.workers[0].exit("terminated") })
	p.runUntil(11*time.Second, poolOf(1))
	require.Len(t, p.started, 2)
	require.EqualValues(t, 2+worker.UnreportedIncarnations, p.started[1].Machine.Incarnation)
}

// Its worker was terminated by hand: the numbers are higher than those that it had.
func TestAChildThatCannotBeStartedIsTriedAgainUnderTheSameNumbers(t *testing.T) {
	p := newFakePool(t)
	p.At(5*time.Second, func() {
		p.workers[0].entry.LeaseSeq += 41
		p.workers[0].report(lifecycle.Ready)
	})
	p.At(6*time.Second, func() {
		p.refuse = 2
		p.workers[0].exit("terminated")
	})
	p.At(6*time.Second+childRetryDelay-100*time.Millisecond, func() {
		require.Equal(t, 1, p.refused, "not before its time")
		require.Contains(t, p.status().Workers[0].Reason, "could not be started")
	})
	p.At(6*time.Second+childRetryDelay+100*time.Millisecond, func() { require.Equal(t, 2, p.refused) })
	p.At(15*time.Second, func() {
		require.Equal(t, []string{"0 ready #3 v1"}, slotsOf(p.status()), "2 may have begun unseen")
	})
	p.runUntil(16*time.Second, poolOf(1))
	require.Len(t, p.started, 2)
	require.EqualValues(t, 2, p.started[1].Machine.Incarnation)
	require.Greater(t, p.started[1].LeaseSeq, p.started[0].LeaseSeq+41)
}

func TestStartsThatFailTogetherAreRetriedAfterOneDelay(t *testing.T) {
	inWorkflow(t, poolOf(10), func(p *pool) {
		for number := range 10 { // in one workflow task
			p.children.startFailed(number, errors.New("it is already running"))
		}
		require.Equal(t, p.Now().Add(childRetryDelay), p.RetryAt)
	})
}

func TestALargePoolStartsAFewWorkflowsAtATime(t *testing.T) {
	p := newFakePool(t)
	most := 0
	p.beforeStart = func() {
		starting := 1
		for _, w := range p.workers {
			if w.entry.RunID == "" {
				starting++
			}
		}
		most = max(most, starting)
	}
	p.At(time.Minute, func() { require.Equal(t, 3*maxStarting, p.status().Ready) })
	p.runUntil(61*time.Second, poolOf(3*maxStarting))
	require.Equal(t, maxStarting, most)
}

func TestFailedStartsAreRetriedWithBackoffAndKeepNoRunFromContinuing(t *testing.T) {
	p := newFakePool(t)
	p.refuse = 5 // 2, 4, 8, 16 and 32 seconds apart
	p.At(60*time.Second, func() { require.Zero(t, p.status().Ready) })
	p.At(70*time.Second, func() { require.Equal(t, 1, p.status().Ready) })
	p.every = 1
	p.runUntil(71*time.Second, poolOf(1))
	require.Equal(t, 5, p.refused)
	require.GreaterOrEqual(t, p.runs, 5, "a run continues as new while a start waits")
}

// A restart finds that the worker is terminated, and the pool learns of that only after it has started the worker
// again.
func TestASignalToTheWorkflowBeforeDoesNotCountForTheNextOne(t *testing.T) {
	p := newFakePool(t)
	// its workers are then those of an earlier run, whose ends it does not see
	p.signalAt(5*time.Second, api.SignalForceContinue, api.Control{})
	number := 1
	p.At(10*time.Second, func() {
		p.slowFailures = 5 * time.Second
		terminated := p.workers[number]
		terminated.exit("terminated")
		p.Update(api.UpdateRestart, api.RestartRequest{Worker: &number})
		p.In(time.Second, func() {
			p.env.SignalWorkflow(api.SignalWorkerClosed,
				api.WorkerClosed{Slot: number, RunID: terminated.entry.RunID, Status: "terminated"})
		})
	})
	p.At(14*time.Second, func() { require.Equal(t, lifecycle.Ready, p.status().Workers[number].State) })
	p.At(time.Minute, func() {
		w := p.status().Workers[number]
		require.False(t, w.Gone, w.Reason)
		require.Equal(t, lifecycle.Ready, w.State)
		require.Equal(t, p.workers[number].entry.RunID, w.RunID)
	})
	p.runUntil(2*time.Minute, poolOf(2))
}

// The handler of a signal stops a worker before the pool learns, in the same workflow task, that the worker's workflow
// has closed, and starts it again.
func TestASignalBeforeTheStartInItsWorkflowTaskDoesNotCountForIt(t *testing.T) {
	p := newFakePool(t)
	number := 1
	p.At(5*time.Second, func() {
		p.workers[number].entry.Host = "h"
		p.workers[number].report(lifecycle.Ready)
	})
	p.At(10*time.Second, func() {
		p.slowFailures = 5 * time.Second
		p.workers[number].exit("terminated")
		p.env.SignalWorkflow(api.SignalMemoryPressure, api.MemoryPressure{Host: "h", Level: string(policy.PressureCritical),
			Workers: []api.WorkerMemory{{Slot: number, Incarnation: 1}, {Slot: number, Incarnation: 1}}})
	})
	p.At(time.Minute, func() {
		w := p.status().Workers[number]
		require.False(t, w.Gone, w.Reason)
		require.Equal(t, lifecycle.Ready, w.State)
	})
	p.runUntil(2*time.Minute, poolOf(2))
}
