package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
	"github.com/tempool/tempool/workflows/sessions"
	"github.com/tempool/tempool/workflows/worker"
)

func TestAPoolStartsOneEvacuationOfAWorkerAtATime(t *testing.T) {
	env := workflowtest.NewEnvironment(nil, sdk.Options{})
	env.SetWorkflowRunTimeout(workflowtest.Never)
	var evacuated []sessions.EvacuateRun
	env.RegisterWorkflowWithOptions(Workflow, workflow.RegisterOptions{Name: api.WorkflowPool})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, _ worker.Run) error {
		workflow.GetSignalChannel(ctx, api.SignalEnd).Receive(ctx, nil)
		return nil
	}, workflow.RegisterOptions{Name: api.WorkflowWorker})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, run sessions.EvacuateRun) (api.SessionMoves, error) {
		evacuated = append(evacuated, run)
		return api.SessionMoves{}, workflow.Sleep(ctx, time.Minute)
	}, workflow.RegisterOptions{Name: api.WorkflowEvacuateWorker})

	answers := map[string]*workflowtest.UpdateResult{}
	ask := func(at time.Duration, as string, request any) {
		env.RegisterDelayedCallback(func() {
			answers[as] = &workflowtest.UpdateResult{}
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
	ask(time.Minute, "early", api.EvacuateRequest{Worker: 1}) // a second before the pool learns of the end
	ask(3*time.Minute, "again", api.EvacuateRequest{Worker: 1})
	ask(4*time.Minute, "stop", api.Control{})
	env.ExecuteWorkflow(api.WorkflowPool, poolOf(2))
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())

	started, is := answers["first"].Value.(api.EvacuateStarted)
	require.True(t, is, "%+v", answers["first"])
	require.Equal(t, "tempool/t/sessions/evacuate/1", started.WorkflowID)
	require.NotEmpty(t, started.RunID)
	workflowtest.RequireCode(t, answers["second"].Err, api.CodeBusy)
	requireRefused(t, answers["nobody"], api.CodeWorkerNotFound)
	require.IsType(t, api.EvacuateStarted{}, answers["other"].Value)
	require.IsType(t, api.EvacuateStarted{}, answers["early"].Value)
	require.IsType(t, api.EvacuateStarted{}, answers["again"].Value)
	require.Equal(t, []sessions.EvacuateRun{
		{Pool: "t", EvacuateRequest: api.EvacuateRequest{Worker: 1, Reason: "maintenance", By: "me"}},
		{Pool: "t", EvacuateRequest: api.EvacuateRequest{Worker: 0}},
		{Pool: "t", EvacuateRequest: api.EvacuateRequest{Worker: 1}},
		{Pool: "t", EvacuateRequest: api.EvacuateRequest{Worker: 1}},
	}, evacuated)
}

func TestDrainReturnsTheStateOfTheWorkerAlsoWhenTheRosterChangesMeanwhile(t *testing.T) {
	p := newFakePool(t)
	drained := p.updateAt(10*time.Second, api.UpdateDrain, api.Control{Worker: number(0)})
	p.updateAt(10*time.Second+2*time.Millisecond, api.UpdateScale, api.ScaleRequest{Size: 20})
	p.At(10*time.Second+5*time.Millisecond, func() {
		entry := p.workers[0].entry
		entry.State = lifecycle.Degraded
		p.env.SignalWorkflow(api.SignalWorkerChanged, entry)
	})
	p.runUntil(30*time.Second, poolOf(2))
	require.NoError(t, drained.Err)
	require.Equal(t, api.CheckinResult{State: lifecycle.Degraded}, drained.Value)
}

func TestADrainOfAWorkerWhoseWorkflowHasEndedIsRefusedAlsoIfTheNextOneStartsAtOnce(t *testing.T) {
	p := newFakePool(t)
	var drained *workflowtest.UpdateResult
	p.signalAt(5*time.Second, api.SignalForceContinue, api.Control{}) // the next run does not learn of the end of a child
	p.At(10*time.Second, func() {
		p.workers[0].exit("")
		drained = p.update(api.UpdateDrain, api.Control{Worker: number(0)})
	})
	p.At(30*time.Second, func() { require.Equal(t, lifecycle.Ready, p.status().Workers[0].State) })
	p.runUntil(time.Minute, poolOf(1))
	workflowtest.RequireCode(t, drained.Err, api.CodeWorkerNotFound)
}
