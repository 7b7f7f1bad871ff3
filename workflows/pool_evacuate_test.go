package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool"
)

func TestAPoolStartsOneEvacuationOfAWorkerAtATime(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(30 * time.Second)
	env.SetWorkflowRunTimeout(never)
	var evacuated []EvacuateRun
	env.RegisterWorkflowWithOptions(Pool, workflow.RegisterOptions{Name: tempool.WorkflowPool})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, _ WorkerRun) error {
		workflow.GetSignalChannel(ctx, tempool.SignalEnd).Receive(ctx, nil)
		return nil
	}, workflow.RegisterOptions{Name: tempool.WorkflowWorker})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, run EvacuateRun) (tempool.SessionMoves, error) {
		evacuated = append(evacuated, run)
		return tempool.SessionMoves{}, workflow.Sleep(ctx, time.Minute)
	}, workflow.RegisterOptions{Name: tempool.WorkflowEvacuateWorker})

	answers := map[string]*updateAnswer{}
	ask := func(at time.Duration, as string, request any) {
		env.RegisterDelayedCallback(func() {
			answers[as] = &updateAnswer{}
			name := tempool.UpdateEvacuate
			if as == "stop" {
				name = tempool.UpdateStop
			}
			env.UpdateWorkflow(name, "", answers[as], request)
		}, at)
	}
	ask(time.Second, "first", tempool.EvacuateRequest{Worker: 1, Reason: "maintenance", By: "me"})
	ask(2*time.Second, "second", tempool.EvacuateRequest{Worker: 1})
	ask(3*time.Second, "other", tempool.EvacuateRequest{Worker: 0})
	ask(4*time.Second, "nobody", tempool.EvacuateRequest{Worker: 2})
	ask(2*time.Minute, "again", tempool.EvacuateRequest{Worker: 1})
	ask(3*time.Minute, "stop", tempool.Control{})
	env.ExecuteWorkflow(tempool.WorkflowPool, poolOf(2))
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())

	started, is := answers["first"].value.(tempool.EvacuateStarted)
	require.True(t, is, "%+v", answers["first"])
	require.Equal(t, "tempool/t/sessions/evacuate/1", started.WorkflowID)
	require.NotEmpty(t, started.RunID)
	codeIs(t, answers["second"].err, tempool.CodeBusy)
	requireRefused(t, answers["nobody"], tempool.CodeWorkerNotFound)
	require.IsType(t, tempool.EvacuateStarted{}, answers["other"].value)
	require.IsType(t, tempool.EvacuateStarted{}, answers["again"].value)
	require.Equal(t, []EvacuateRun{
		{Pool: "t", EvacuateRequest: tempool.EvacuateRequest{Worker: 1, Reason: "maintenance", By: "me"}},
		{Pool: "t", EvacuateRequest: tempool.EvacuateRequest{Worker: 0}}, {Pool: "t", EvacuateRequest: tempool.EvacuateRequest{Worker: 1}},
	}, evacuated)
}
