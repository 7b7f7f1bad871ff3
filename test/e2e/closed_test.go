package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// continued has a pool continue as new and waits until it has.
func (env *testEnv) continued(pool string) {
	env.t.Helper()
	run := func() string {
		answer, err := env.client.Temporal().DescribeWorkflowExecution(env.t.Context(), api.PoolWorkflowID(pool), "")
		require.NoError(env.t, err)
		return answer.GetWorkflowExecutionInfo().GetExecution().GetRunId()
	}
	before := run()
	require.NoError(env.t, env.client.Temporal().SignalWorkflow(env.t.Context(), api.PoolWorkflowID(pool), "", api.SignalForceContinue, nil))
	require.Eventually(env.t, func() bool { return run() != before }, waitTimeout, 100*time.Millisecond, "pool %s continues as new", pool)
}

// restAndContinue stops a worker, which then rests, and has its pool continue as new.
func (env *testEnv) restAndContinue(pool *tempool.Pool, slot int) {
	env.t.Helper()
	require.NoError(env.t, pool.Signal(env.t.Context(), slot, api.SignalStop, api.Control{Reason: "it rests"}))
	env.waitState(pool, slot, lifecycle.Stopped)
	env.continued(pool.Name())
}

func TestAWorkerTerminatedAfterItsPoolContinuedIsReplaced(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("host-a")
	pool := env.startPool(echoSpec("heirs", 2))
	before := env.waitReady(pool, 2)
	env.continued("heirs")
	env.continued("heirs")
	require.NoError(t, env.client.Temporal().TerminateWorkflow(t.Context(), api.WorkerWorkflowID("heirs", 0), "", "by hand"))
	env.waitFor(pool, "the terminated worker is replaced", func(v api.PoolWorkers) bool {
		return v.Ready == 2 && v.Workers[0].Incarnation > 1 && v.Workers[0].LeaseSeq > before.Workers[0].LeaseSeq
	})
}

func TestARestingWorkerTerminatedAfterItsPoolContinuedIsReplaced(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("host-a")
	pool := env.startPool(echoSpec("heirs", 2))
	env.restAndContinue(pool, 1)
	require.NoError(t, env.client.Temporal().TerminateWorkflow(t.Context(), api.WorkerWorkflowID("heirs", 1), "", "by hand"))
	env.waitFor(pool, "the terminated worker is replaced", func(v api.PoolWorkers) bool { return v.Ready == 2 && v.Workers[1].Incarnation > 1 })
}

func TestRestingWorkersOfATerminatedPoolEndAndThePoolCanBeStartedAgain(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("host-a")
	spec := echoSpec("heirs", 2)
	pool := env.startPool(spec)
	env.restAndContinue(pool, 1)
	require.NoError(t, env.client.Temporal().TerminateWorkflow(t.Context(), api.PoolWorkflowID("heirs"), "", "by hand"))
	require.Eventually(t, func() bool {
		open, err := env.client.Temporal().ListOpenWorkflow(t.Context(), &workflowservice.ListOpenWorkflowExecutionsRequest{Namespace: env.client.Namespace()})
		require.NoError(t, err)
		for _, e := range open.GetExecutions() {
			if e.GetType().GetName() == api.WorkflowWorker && e.GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
				return false
			}
		}
		return true
	}, waitTimeout, 100*time.Millisecond, "no worker outlives its pool")
	env.startPool(spec)
}

func TestAPoolStartedAgainRightAfterItWasTerminatedIsWhole(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("host-a")
	spec := echoSpec("heirs", 3)
	pool := env.startPool(spec)
	env.restAndContinue(pool, 1)
	require.NoError(t, env.client.Temporal().TerminateWorkflow(t.Context(), api.PoolWorkflowID("heirs"), "", "by hand"))
	env.startPool(spec)
}

func TestRunsOfSleepingWorkflowsAreContinuedByTheSweeper(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("host-a")
	pool := env.startPool(echoSpec("asleep", 2))
	require.NoError(t, pool.Signal(t.Context(), 1, api.SignalStop, api.Control{Reason: "it rests"}))
	env.waitState(pool, 1, lifecycle.Stopped)
	sweeper := &activities.Sweeper{Temporal: env.client.Temporal(), Namespace: env.client.Namespace()}
	started := time.Now()
	continued := 0
	require.Eventually(t, func() bool { // visibility lags
		n, err := sweeper.ContinueRunsBefore(t.Context(), started, func() {})
		require.NoError(t, err)
		continued += n
		return continued >= 3 && n == 0
	}, waitTimeout, 100*time.Millisecond, "the pool and both workers, and none twice for long")
	for _, id := range []string{api.PoolWorkflowID("asleep"), api.WorkerWorkflowID("asleep", 0), api.WorkerWorkflowID("asleep", 1)} {
		require.Eventually(t, func() bool {
			answer, err := env.client.Temporal().DescribeWorkflowExecution(t.Context(), id, "")
			info := answer.GetWorkflowExecutionInfo()
			return err == nil && info.GetFirstRunId() != info.GetExecution().GetRunId()
		}, waitTimeout, 50*time.Millisecond, "%s continues as new", id)
	}
	view := env.waitFor(pool, "one worker is ready and one rests", func(v api.PoolWorkers) bool { return v.Ready == 1 })
	require.EqualValues(t, 1, view.Workers[0].Incarnation)
	require.Equal(t, lifecycle.Stopped, view.Workers[1].State)
}
