package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func TestReplayRecordsMoreTransitionsThanTheRingHolds(t *testing.T) {
	const steps = 3*lifecycle.RingSize + 7
	var all []lifecycle.Transition
	leased := func(ctx workflow.Context, machine lifecycle.Machine) error {
		history := func() ([]lifecycle.Transition, error) { return machine.Ring, nil }
		if err := workflow.SetQueryHandler(ctx, api.QueryHistory, history); err != nil {
			return err
		}
		for range steps {
			kind := lifecycle.Checkout
			if machine.State == lifecycle.Busy {
				kind = lifecycle.Checkin
			}
			next, err := lifecycle.Next(machine, lifecycle.Event{Kind: kind, Reason: "step"}, workflow.Now(ctx))
			if err != nil {
				return err
			}
			machine = next
			all = append(all, machine.Ring[len(machine.Ring)-1])
		}
		return nil
	}

	began := lifecycle.New(noon)
	for _, kind := range []lifecycle.EventKind{lifecycle.Start, lifecycle.StartSucceeded} {
		var err error
		began, err = lifecycle.Next(began, lifecycle.Event{Kind: kind}, noon)
		require.NoError(t, err)
	}
	notes := &transitionRecorder{}
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetStartTime(noon)
	env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{notes}})
	env.ExecuteWorkflow(leased, began)
	require.NoError(t, env.GetWorkflowError())

	require.Len(t, all, steps)
	require.Equal(t, append(append([]lifecycle.Transition{}, began.Ring...), all...), notes.transitions)
}

func TestUnprocessedEventsAreNotReplayed(t *testing.T) {
	kinds := func(kinds ...enums.EventType) []*history.HistoryEvent {
		var events []*history.HistoryEvent
		for _, kind := range kinds {
			events = append(events, &history.HistoryEvent{EventType: kind})
		}
		return events
	}
	const (
		started   = enums.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED
		scheduled = enums.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED
		begun     = enums.EVENT_TYPE_WORKFLOW_TASK_STARTED
		completed = enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
		activity  = enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
		timer     = enums.EVENT_TYPE_TIMER_STARTED
		signal    = enums.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
		continued = enums.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW
	)
	for name, c := range map[string]struct {
		events []*history.HistoryEvent
		keep   int
	}{
		"nothing decided yet":     {kinds(started, scheduled, begun), 0},
		"a task and its commands": {kinds(started, scheduled, begun, completed, activity, timer), 6},
		"a signal not seen yet":   {kinds(started, scheduled, begun, completed, activity, signal, scheduled, begun), 5},
		"two tasks": {kinds(started, scheduled, begun, completed, signal, scheduled, begun, completed, timer,
			signal), 9},
		"a closed run": {kinds(started, scheduled, begun, completed, continued), 5},
	} {
		t.Run(name, func(t *testing.T) { require.Len(t, replayablePrefix(c.events), c.keep) })
	}
	none, err := replayRun(converter.GetDefaultDataConverter(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}
