package workflowtest

import (
	"context"
	"testing"
	"time"

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
	env.RegisterActivityWithOptions(func(context.Context) error {
		time.Sleep(50 * time.Millisecond)
		return nil
	}, activity.RegisterOptions{Name: "slow"})
	ended, endedBefore := false, false
	s.At(10*time.Millisecond, func() { endedBefore = ended })
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
