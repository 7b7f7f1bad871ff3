package tempoolworkflow_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/tempoolworkflow"
)

type person struct{ Name string }

func greet(ctx workflow.Context, name string) (string, error) {
	return tempoolworkflow.Execute[string](ctx, "hello", "greet", person{name})
}

func newEnv() *testsuite.TestWorkflowEnvironment {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute}) // on a slow machine, its second is short
	env.RegisterActivityWithOptions(func(api.ExecuteRequest) (string, error) { return "", nil },
		activity.RegisterOptions{Name: api.ActivityExecute})
	return env
}

func TestExecuteCallsThePoolsActivity(t *testing.T) {
	env := newEnv()
	var info activity.Info
	env.SetOnActivityStartedListener(func(i *activity.Info, _ context.Context, _ converter.EncodedValues) { info = *i })
	env.OnActivity(api.ActivityExecute, mock.MatchedBy(func(r api.ExecuteRequest) bool {
		return r.Method == "greet" && string(r.Params) == `{"Name":"Ada"}`
	})).Return("Hello, Ada!", nil)
	env.ExecuteWorkflow(greet, "Ada")
	require.NoError(t, env.GetWorkflowError())
	var answer string
	require.NoError(t, env.GetWorkflowResult(&answer))
	require.Equal(t, "Hello, Ada!", answer)
	require.Equal(t, api.PoolQueue("hello"), info.TaskQueue)
	require.Equal(t, api.HeartbeatTimeout, info.HeartbeatTimeout)
	require.Equal(t, tempoolworkflow.DefaultTimeout, info.StartToCloseTimeout)
}

func TestTheActivityOutlastsTheTimeoutOfItsCall(t *testing.T) {
	env := newEnv()
	var info activity.Info
	env.SetOnActivityStartedListener(func(i *activity.Info, _ context.Context, _ converter.EncodedValues) { info = *i })
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		request := api.ExecuteRequest{Method: "greet", TimeoutMS: 600_000}
		_, err := tempoolworkflow.ExecuteRequest[string](ctx, "hello", request, nil)
		return err
	})
	require.NoError(t, env.GetWorkflowError())
	require.Greater(t, info.StartToCloseTimeout, 10*time.Minute)
}

func TestExecuteGivesUpWhenTheQueueDoes(t *testing.T) {
	env := newEnv()
	tries := 0
	env.OnActivity(api.ActivityExecute, mock.Anything).Return(func(api.ExecuteRequest) (string, error) {
		tries++
		return "", temporal.NewApplicationError("no worker became free", string(api.CodeQueueTimeout))
	})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Hour})
		_, err := tempoolworkflow.Execute[string](ctx, "hello", "greet", nil)
		return err
	})
	var failure *temporal.ApplicationError
	require.ErrorAs(t, env.GetWorkflowError(), &failure)
	require.Equal(t, string(api.CodeQueueTimeout), failure.Type())
	require.Equal(t, 1, tries)
}
