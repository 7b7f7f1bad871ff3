package loop_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/workflows/internal/loop"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
)

func inWorkflow(t *testing.T, test func(ctx workflow.Context, l *loop.Loop)) {
	t.Helper()
	env := workflowtest.NewEnvironment(nil, worker.Options{})
	ran := false
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		test(ctx, loop.New(ctx))
		ran = true
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
	require.True(t, ran)
}

// TestARunKeepsTheChangesOfItsBeginning: the change is invented, and so is the build that did not have it.
func TestARunKeepsTheChangesOfItsBeginning(t *testing.T) {
	for build, begun := range map[string]workflow.Version{"with the change": 1, "without it": workflow.DefaultVersion} {
		t.Run(build, func(t *testing.T) {
			env := workflowtest.NewEnvironment(nil, worker.Options{})
			env.OnGetVersion("invented", workflow.DefaultVersion, workflow.Version(1)).Return(begun)
			var has bool
			env.ExecuteWorkflow(func(ctx workflow.Context) error {
				has = loop.New(ctx).HasChange("invented")
				return nil
			})
			require.NoError(t, env.GetWorkflowError())
			require.Equal(t, begun == 1, has)
		})
	}
}

func TestAwaitHandlesReadyFuturesInTheOrderTheyWereAdded(t *testing.T) {
	inWorkflow(t, func(ctx workflow.Context, l *loop.Loop) {
		var handled []int
		var settables []workflow.Settable
		for i := range 5 {
			future, settable := workflow.NewFuture(ctx)
			settables = append(settables, settable)
			l.OnFuture(future, func(workflow.Future) { handled = append(handled, i) })
		}
		for _, i := range []int{3, 1, 4} {
			settables[i].SetValue(nil)
		}
		require.NoError(t, l.Await())
		require.Equal(t, []int{1, 3, 4}, handled)
		settables[2].SetValue(nil)
		settables[0].SetValue(nil)
		require.NoError(t, l.Await())
		require.Equal(t, []int{1, 3, 4, 0, 2}, handled, "each future is handled once")
	})
}

func TestWakeUpEndsOneAwait(t *testing.T) {
	inWorkflow(t, func(_ workflow.Context, l *loop.Loop) {
		began := l.Now()
		l.WakeUp()
		require.NoError(t, l.Await())
		require.Equal(t, began, l.Now())
		var timer loop.Timer
		timer.Start(l, time.Minute, "")
		require.NoError(t, l.Await())
		require.Equal(t, time.Minute, l.Now().Sub(began))
		require.True(t, timer.Take())
		require.False(t, timer.Take())
	})
}

func TestACancellationIsHandledOnceAfterWhatCameBefore(t *testing.T) {
	env := workflowtest.NewEnvironment(nil, worker.Options{})
	env.RegisterDelayedCallback(func() {
		env.SignalWorkflow("note", "first")
		env.CancelWorkflow()
	}, time.Second)
	var handled []string
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		l := loop.New(ctx)
		loop.OnSignal(l, "note", func(text string) { handled = append(handled, text) },
			func(text string) { handled = append(handled, text) })
		l.OnCancel(ctx, func() { handled = append(handled, "cancelled") })
		for len(handled) < 2 {
			if err := l.Await(); err != nil {
				return err
			}
		}
		var timer loop.Timer
		timer.Start(l, time.Minute, "")
		return l.Await()
	})
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, []string{"first", "cancelled"}, handled)
}

func TestACancelledTimerDoesNotFireAndASecondOneDoes(t *testing.T) {
	inWorkflow(t, func(_ workflow.Context, l *loop.Loop) {
		began := l.Now()
		var timer loop.Timer
		timer.Start(l, time.Minute, "")
		timer.Cancel()
		require.False(t, timer.Running())
		timer.Start(l, time.Hour, "")
		for timer.Running() {
			require.NoError(t, l.Await())
		}
		require.True(t, timer.Ended())
		require.Equal(t, time.Hour, l.Now().Sub(began))
	})
}

func TestARunThatHasCancelledManyTasksContinuesAsNew(t *testing.T) {
	inWorkflow(t, func(_ workflow.Context, l *loop.Loop) {
		for range loop.MaxCancelledTasks {
			require.False(t, l.ContinueDue(0))
			var timer loop.Timer
			timer.Start(l, time.Hour, "")
			timer.Cancel()
		}
		require.True(t, l.ContinueDue(0))
	})
}

func TestARunContinuesAsNewWithinADay(t *testing.T) {
	inWorkflow(t, func(ctx workflow.Context, l *loop.Loop) {
		require.NoError(t, workflow.Sleep(ctx, 19*time.Hour))
		require.False(t, l.ContinueDue(0))
		require.NoError(t, workflow.Sleep(ctx, 5*time.Hour))
		require.True(t, l.ContinueDue(0))
	})
}
