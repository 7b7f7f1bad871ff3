package workflowtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

func TestAStepComesAfterTheResultOfAnActivityThatIsSlowOnABusyMachine(t *testing.T) {
	s := NewScript()
	env := NewEnvironment(nil, worker.Options{Interceptors: []interceptor.WorkerInterceptor{s.Interceptor()}})
	env.SetStartTime(s.Begin)
	const at = 10 * time.Millisecond
	env.RegisterActivityWithOptions(func(context.Context) error { // ends after the time of the step
		if !assert.Eventually(t, func() bool { return s.Elapsed() > 2*at }, DeadlockTimeout, time.Millisecond) {
			return errors.New("the clock stands still")
		}
		return nil
	}, activity.RegisterOptions{Name: "slow"})
	ended, endedBefore := false, false
	s.At(at, func() { endedBefore = ended })
	s.StartRun(env)
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Hour})
		if err := workflow.ExecuteActivity(ctx, "slow").Get(ctx, nil); err != nil {
			return err
		}
		ended = true
		return workflow.Sleep(ctx, time.Hour)
	})
	require.NoError(t, env.GetWorkflowError())
	s.RequireDone(t)
	require.True(t, endedBefore)
}
