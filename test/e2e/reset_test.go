package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// byHand is the reason given for a reset.
const byHand = "by hand"

// resetTo resets a run to after a workflow task that it has completed. Signals and updates that came later are applied
// again, unless excluded.
func (env *testEnv) resetTo(ctx context.Context, id, run string, event int64,
	excluded ...enums.ResetReapplyExcludeType) error {
	_, err := env.client.Temporal().ResetWorkflowExecution(ctx, &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: env.client.Namespace(), WorkflowExecution: &common.WorkflowExecution{WorkflowId: id, RunId: run},
		Reason:                    byHand,
		WorkflowTaskFinishEventId: event, RequestId: uuid.NewString(), ResetReapplyExcludeTypes: excluded,
	})
	return err
}

// resetToWaitFor resets the newest run of a workflow to the first workflow task after it scheduled an activity for the
// first time, and before that ended.
func (env *testEnv) resetToWaitFor(id, activity string) {
	env.t.Helper()
	run := env.currentRun(id)
	history := env.client.Temporal().GetWorkflowHistory(env.t.Context(), id, run, false,
		enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	scheduled := false
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(env.t, err)
		switch event.GetEventType() {
		case enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
			scheduled = scheduled || event.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == activity
		case enums.EVENT_TYPE_ACTIVITY_TASK_STARTED:
			require.False(env.t, scheduled, "no workflow task while %s waits for %s", id, activity)
		case enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
			if !scheduled {
				continue
			}
			require.NoError(env.t, env.resetTo(env.t.Context(), id, run, event.GetEventId()))
			return
		}
	}
	require.FailNow(env.t, "no workflow task to reset to")
}

// nudge has a workflow complete a task in which it has nothing to do.
func (env *testEnv) nudge(id string) {
	env.t.Helper()
	require.NoError(env.t, env.client.Temporal().SignalWorkflow(env.t.Context(), id, "", "nudge", nil))
	require.Eventually(env.t, func() bool {
		history := env.client.Temporal().GetWorkflowHistory(env.t.Context(), id, "", false,
			enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		signalled := false
		for history.HasNext() {
			event, err := history.Next()
			if err != nil {
				return false
			}
			signalled = signalled || event.GetWorkflowExecutionSignaledEventAttributes().GetSignalName() == "nudge"
			if signalled && event.GetEventType() == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
				return true
			}
		}
		return false
	}, waitTimeout, 50*time.Millisecond, "%s has completed a task", id)
}

// The agent whose answer the worker waits for after the reset ended while the worker rested, so nobody notifies the
// worker of that.
func TestAWorkerThatWasResetToWhereItWaitedForAnAgentThatIsGone(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	first := env.startAgent("reset-waits")
	s := pythonSpec("waits", 1, "ends.py")
	s.Pool.Env["OBSTINATE"], s.Pool.StopGrace = "1", spec.Duration(10*time.Second)
	pool := env.startPool(s)
	require.NoError(t, pool.Signal(t.Context(), 0, api.SignalStop, api.Control{Reason: "by hand"}))
	env.waitState(pool, 0, lifecycle.Stopping)
	env.nudge(api.WorkerWorkflowID("waits", 0))
	rests := func(v api.PoolWorkers) bool { return v.Workers[0].State.Outcome() }
	env.waitFor(pool, "the worker rests", rests)
	first.stop()
	env.startAgent("reset-waits")

	env.resetToWaitFor(api.WorkerWorkflowID("waits", 0), api.ActivityStop)
	env.waitFor(pool, "the worker rests again", rests)
	_, err := pool.Stop(t.Context(), "done")
	require.NoError(t, err)
	env.waitEnd(pool)
}

func TestAHostThatWasResetToWhenItsAgentLivedIsLost(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("reset-other")
	gone := env.startAgent("reset-gone")
	id := api.HostWorkflowID("reset-gone")
	state := func() api.HostState {
		var status api.HostStatus
		value, err := env.client.Temporal().QueryWorkflow(t.Context(), id, "", api.QueryStatus)
		if err != nil || value.Get(&status) != nil {
			return ""
		}
		return status.State
	}
	awaitState := func(want api.HostState) {
		require.Eventually(t, func() bool { return state() == want }, waitTimeout, 100*time.Millisecond, "the host is %s",
			want)
	}
	awaitState(api.HostUp)
	env.nudge(id)
	gone.kill()
	awaitState(api.HostLost)
	env.resetToWaitFor(id, api.ActivityHostLiveness)
	awaitState(api.HostLost)
}
