package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
)

func TestAPoolStartsOneEvacuationOfAWorkerAtATime(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(30 * time.Second)
	env.SetWorkflowRunTimeout(never)
	var evacuated []EvacuateRun
	env.RegisterWorkflowWithOptions(Pool, workflow.RegisterOptions{Name: api.WorkflowPool})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, _ WorkerRun) error {
		workflow.GetSignalChannel(ctx, api.SignalEnd).Receive(ctx, nil)
		return nil
	}, workflow.RegisterOptions{Name: api.WorkflowWorker})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, run EvacuateRun) (api.SessionMoves, error) {
		evacuated = append(evacuated, run)
		return api.SessionMoves{}, workflow.Sleep(ctx, time.Minute)
	}, workflow.RegisterOptions{Name: api.WorkflowEvacuateWorker})

	answers := map[string]*updateAnswer{}
	ask := func(at time.Duration, as string, request any) {
		env.RegisterDelayedCallback(func() {
			answers[as] = &updateAnswer{}
			name := api.UpdateEvacuate
			if as == "stop" {
				name = api.UpdateStop
			}
			env.UpdateWorkflow(name, "", answers[as], request)
		}, at)
	}
	ask(time.Second, "first", api.EvacuateRequest{Worker: 1, Reason: "maintenance", By: "me"})
	ask(2*time.Second, "second", api.EvacuateRequest{Worker: 1})
	ask(3*time.Second, "other", api.EvacuateRequest{Worker: 0})
	ask(4*time.Second, "nobody", api.EvacuateRequest{Worker: 2})
	ask(2*time.Minute, "again", api.EvacuateRequest{Worker: 1})
	ask(3*time.Minute, "stop", api.Control{})
	env.ExecuteWorkflow(api.WorkflowPool, poolOf(2))
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())

	started, is := answers["first"].value.(api.EvacuateStarted)
	require.True(t, is, "%+v", answers["first"])
	require.Equal(t, "tempool/t/sessions/evacuate/1", started.WorkflowID)
	require.NotEmpty(t, started.RunID)
	codeIs(t, answers["second"].err, api.CodeBusy)
	requireRefused(t, answers["nobody"], api.CodeWorkerNotFound)
	require.IsType(t, api.EvacuateStarted{}, answers["other"].value)
	require.IsType(t, api.EvacuateStarted{}, answers["again"].value)
	require.Equal(t, []EvacuateRun{
		{Pool: "t", EvacuateRequest: api.EvacuateRequest{Worker: 1, Reason: "maintenance", By: "me"}},
		{Pool: "t", EvacuateRequest: api.EvacuateRequest{Worker: 0}}, {Pool: "t", EvacuateRequest: api.EvacuateRequest{Worker: 1}},
	}, evacuated)
}
