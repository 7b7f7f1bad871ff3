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
		p.workerChanged(api.WorkerChanged{RosterEntry: last})
		p.workerChanged(api.WorkerChanged{RosterEntry: report})
		require.True(t, p.slot(0).Gone)
		require.Equal(t, lifecycle.Stopped, p.slot(0).State)
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
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
