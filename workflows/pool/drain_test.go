package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
	"github.com/tempool/tempool/workflows/sessions"
)

// evacuate is an evacuation that takes a minute.
func (p *fakePool) evacuate(ctx workflow.Context, run sessions.EvacuateRun) (api.SessionMoves, error) {
	p.evacuated = append(p.evacuated, run)
	return api.SessionMoves{}, workflow.Sleep(ctx, time.Minute)
}

func TestAPoolStartsOneEvacuationOfAWorkerAtATime(t *testing.T) {
	p := newFakePool(t)
	ask := func(at time.Duration, r api.EvacuateRequest) *workflowtest.UpdateResult {
		return p.UpdateAt(at, api.UpdateEvacuate, r)
	}
	first := ask(time.Second, api.EvacuateRequest{Worker: 1, Reason: "maintenance", By: "me"})
	second := ask(2*time.Second, api.EvacuateRequest{Worker: 1})
	other := ask(3*time.Second, api.EvacuateRequest{Worker: 0})
	nobody := ask(4*time.Second, api.EvacuateRequest{Worker: 2})
	early := ask(time.Minute, api.EvacuateRequest{Worker: 1}) // a second before the pool learns of the end
	again := ask(3*time.Minute, api.EvacuateRequest{Worker: 1})
	p.runUntil(5*time.Minute, poolOf(2))
	started, is := first.Value.(api.EvacuateStarted)
	require.True(t, is, "%+v", first)
	require.Equal(t, "tempool/t/sessions/evacuate/1", started.WorkflowID)
	require.NotEmpty(t, started.RunID)
	workflowtest.RequireCode(t, second.Err, api.CodeBusy)
	requireRefused(t, nobody, api.CodeWorkerNotFound)
	for _, later := range []*workflowtest.UpdateResult{other, early, again} {
		require.IsType(t, api.EvacuateStarted{}, later.Value)
	}
	require.Equal(t, []sessions.EvacuateRun{
		{Pool: "t", EvacuateRequest: api.EvacuateRequest{Worker: 1, Reason: "maintenance", By: "me"}},
		{Pool: "t", EvacuateRequest: api.EvacuateRequest{Worker: 0}},
		{Pool: "t", EvacuateRequest: api.EvacuateRequest{Worker: 1}},
		{Pool: "t", EvacuateRequest: api.EvacuateRequest{Worker: 1}},
	}, p.evacuated)
}

func TestDrainReturnsTheStateOfTheWorkerAlsoWhenTheRosterChangesMeanwhile(t *testing.T) {
	p := newFakePool(t)
	drained := p.UpdateAt(10*time.Second, api.UpdateDrain, api.Control{Worker: number(0)})
	p.UpdateAt(10*time.Second+2*time.Millisecond, api.UpdateScale, api.ScaleRequest{Size: 20})
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
		drained = p.Update(api.UpdateDrain, api.Control{Worker: number(0)})
	})
	p.At(30*time.Second, func() { require.Equal(t, lifecycle.Ready, p.status().Workers[0].State) })
	p.runUntil(time.Minute, poolOf(1))
	workflowtest.RequireCode(t, drained.Err, api.CodeWorkerNotFound)
}
