package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/loop"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
	"github.com/tempool/tempool/workflows/worker"
)

func TestAWorkersLastReportIsNotUndoneByAnEarlierOneThatArrivesLater(t *testing.T) {
	env := workflowtest.NewEnvironment(nil, sdk.Options{})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		p := &pool{Run: poolOf(1), Loop: loop.New(ctx)}
		p.throttle = throttle{p}
		p.ensure(0).RunID = "run"
		report := api.RosterEntry{RunID: "run", Incarnation: 1, State: lifecycle.Stopping}
		last := report
		last.State, last.Gone = lifecycle.Stopped, true
		p.workerChanged(last)
		p.workerChanged(report)
		require.True(t, p.slot(0).Gone)
		require.Equal(t, lifecycle.Stopped, p.slot(0).State)
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
}

func TestAWorkerThatWasResetReportsALowerIncarnation(t *testing.T) {
	p := newFakePool(t)
	w := func() *fakeWorker { return p.workers[0] }
	p.At(5*time.Second, func() {
		w().unresponsive = true
		w().entry.Incarnation = 7
		w().rest(lifecycle.Stopped, "stopped by hand")
	})
	p.At(10*time.Second, func() {
		w().entry.Incarnation = 3
		late := w().entry
		late.Since = p.Begin
		p.env.SignalWorkflow(api.SignalWorkerChanged, late)
	})
	p.At(15*time.Second, func() {
		require.EqualValues(t, 7, p.status().Workers[0].Incarnation, "a report that another one has overtaken")
	})
	p.updateAt(20*time.Second, api.UpdateRestart, api.RestartRequest{Reason: "new moon"})
	p.At(25*time.Second, func() {
		w().rest(lifecycle.Stopped, "reset")
		w().entry.Incarnation = 4
		w().report(lifecycle.Ready)
	})
	p.At(30*time.Second, func() {
		require.EqualValues(t, 4, p.status().Workers[0].Incarnation)
		require.Nil(t, p.status().Rollout, "it has restarted, under a number that was known")
	})
	p.stopAt(time.Minute)
	p.run(poolOf(1))
}

func TestAWorkerThatRestsAndStartsUnderAKnownNumberIsAsked(t *testing.T) {
	p := newFakePool(t)
	started := func(run string) {
		w := p.workers[0]
		p.env.SignalWorkflow(api.SignalProcessesStarted, api.ProcessesStarted{Host: "h", Processes: []api.StartedProcess{
			{Slot: 0, Incarnation: w.entry.Incarnation, State: lifecycle.Ready, RunID: run, PID: 1},
		}})
	}
	asked := func() int { return len(p.workers[0].timesOf(api.SignalReport)) }
	p.At(5*time.Second, func() { started(p.workers[0].entry.RunID) })
	p.At(10*time.Second, func() {
		require.Zero(t, asked(), "it is known to serve")
		p.workers[0].rest(lifecycle.Stopped, "stopped by hand")
	})
	p.At(15*time.Second, func() {
		started("of another workflow")
		started(p.workers[0].entry.RunID)
	})
	p.At(20*time.Second, func() { require.Equal(t, 1, asked()) })
	p.stopAt(time.Minute)
	p.run(poolOf(1))
}

// Its agent announces the process, so the worker need not. The pool grants no rotation to an incarnation below the one
// that it knows.
func TestAWorkerThatStartsUnderALowerNumberIsAsked(t *testing.T) {
	p := newFakePool(t)
	p.At(5*time.Second, func() {
		w := p.workers[0]
		w.entry.Incarnation = 7
		w.report(lifecycle.Ready)
	})
	p.At(10*time.Second, func() {
		w := p.workers[0]
		w.entry.Incarnation, w.entry.Host = 1, "other"
		p.env.SignalWorkflow(api.SignalProcessesStarted, api.ProcessesStarted{Host: "other", Processes: []api.StartedProcess{
			{Slot: 0, Incarnation: 1, State: lifecycle.Ready, RunID: w.entry.RunID, PID: 1},
		}})
	})
	p.At(15*time.Second, func() {
		require.EqualValues(t, 1, p.status().Workers[0].Incarnation)
		require.Equal(t, "other", p.status().Workers[0].Host)
	})
	p.stopAt(time.Minute)
	p.run(poolOf(1))
}

func TestAWorkerThatThePoolDoesNotHaveIsEnded(t *testing.T) {
	p := newFakePool(t)
	p.At(5*time.Second, func() {
		w := p.startWorker(worker.Run{Pool: "t", Slot: 7})
		w.child, w.entry.RunID = false, "of an earlier run"
		w.report(lifecycle.Ready)
	})
	p.At(10*time.Second, func() {
		require.False(t, p.workers[7].open)
		require.Equal(t, []string{"0 ready #1 v1"}, slotsOf(p.status()))
	})
	p.stopAt(11 * time.Second)
	p.run(poolOf(1))
}
