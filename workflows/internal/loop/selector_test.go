package loop

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/workflows/internal/workflowtest"
)

// inWorkflow runs f as a workflow.
func inWorkflow(t *testing.T, f func(ctx workflow.Context)) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(workflowtest.Stalled)
	env.SetWorkerOptions(sdk.Options{DeadlockDetectionTimeout: workflowtest.Stalled})
	env.ExecuteWorkflow(func(ctx workflow.Context) error { f(ctx); return nil })
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())
}

func TestAnEarParksChannelsFirstAndFuturesInTheOrderTheyWereAdded(t *testing.T) {
	t.Parallel()
	inWorkflow(t, func(ctx workflow.Context) {
		var parked []int
		e := NewSelector(ctx)
		c := workflow.NewBufferedChannel(ctx, 9)
		e.AddReceive(c, func(c workflow.ReceiveChannel) { c.Receive(ctx, nil); parked = append(parked, 0) })
		for round := range 5 { // the selector has been replaced in between
			parked = nil
			var set []workflow.Settable
			for i := 1; i <= 4; i++ {
				future, settable := workflow.NewFuture(ctx)
				e.AddFuture(future, func(workflow.Future) { parked = append(parked, i) })
				set = append(set, settable)
			}
			require.False(t, e.HasPending())
			for i := len(set) - 1; i >= 0; i-- {
				set[i].Set(nil, nil)
			}
			c.Send(ctx, true)
			require.True(t, e.HasPending())
			e.SelectPending(ctx)
			require.Equal(t, []int{0, 1, 2, 3, 4}, parked, "round %d", round)
			require.False(t, e.HasPending(), "each is parked once")
		}
	})
}

func TestAnEarWaitsAndGoesOnWithWhatHasNotBeenHeard(t *testing.T) {
	t.Parallel()
	inWorkflow(t, func(ctx workflow.Context) {
		var parked []time.Duration
		e := NewSelector(ctx)
		for _, d := range []time.Duration{time.Hour, 3 * time.Minute, 2 * time.Minute, time.Minute} {
			e.AddFuture(workflow.NewTimer(ctx, d), func(workflow.Future) { parked = append(parked, d) })
		}
		for len(parked) < 4 {
			e.Select(ctx)
		}
		require.Equal(t, []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute, time.Hour}, parked)
		require.Empty(t, e.futures)
	})
}

func TestAnEarLetsGoOfWhatItHasHeard(t *testing.T) {
	t.Parallel()
	inWorkflow(t, func(ctx workflow.Context) {
		freed := make(chan struct{})
		e := NewSelector(ctx)
		never, _ := workflow.NewFuture(ctx)
		e.AddFuture(never, func(workflow.Future) {})
		func() {
			held := new([1 << 10]byte)
			runtime.AddCleanup(held, func(struct{}) { close(freed) }, struct{}{})
			future, settable := workflow.NewFuture(ctx)
			e.AddFuture(future, func(workflow.Future) { held[0]++ })
			settable.Set(nil, nil)
		}()
		e.SelectPending(ctx)
		require.Eventually(t, func() bool {
			runtime.GC()
			select {
			case <-freed:
				return true
			default:
				return false
			}
		}, 10*time.Second, time.Millisecond)
		require.Len(t, e.futures, 1)
	})
}
