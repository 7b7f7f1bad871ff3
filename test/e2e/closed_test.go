package e2e

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/activities/sweeper"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// continued has a pool continue as new and waits until it has.
func (env *testEnv) continued(pool string) { env.continueAsNew(api.PoolWorkflowID(pool)) }

// continueAsNew has a workflow continue as new and waits until it has.
func (env *testEnv) continueAsNew(id string) {
	env.t.Helper()
	before := env.currentRun(id)
	env.send(id, api.SignalForceContinue, nil)
	require.Eventually(env.t, func() bool {
		info, err := env.describe(id)
		return err == nil && info.GetExecution().GetRunId() != before
	}, waitTimeout, 100*time.Millisecond, "%s continues as new", id)
}

// currentRun is the newest run of a workflow.
func (env *testEnv) currentRun(id string) string {
	env.t.Helper()
	info := asked(env, func(context.Context) (*workflow.WorkflowExecutionInfo, error) { return env.describe(id) })
	return info.GetExecution().GetRunId()
}

func (env *testEnv) describe(id string) (*workflow.WorkflowExecutionInfo, error) {
	answer, err := env.client.Temporal().DescribeWorkflowExecution(env.t.Context(), id, "")
	return answer.GetWorkflowExecutionInfo(), err
}

// terminate ends a workflow as an operator does in Temporal's Web UI.
func (env *testEnv) terminate(workflowID string) {
	env.t.Helper()
	run := env.currentRun(workflowID) // not one that begins before a second attempt
	env.repeat(func(ctx context.Context) error {
		err := env.client.Temporal().TerminateWorkflow(ctx, workflowID, run, "by hand")
		if _, ended := errors.AsType[*serviceerror.NotFound](err); ended {
			return nil
		}
		return err
	})
}

// restAndContinue drains a worker, which then rests, and has its pool continue as new.
func (env *testEnv) restAndContinue(pool *tempool.Pool, slot int) {
	env.t.Helper()
	env.signal(pool, slot, api.SignalDrain, "it rests")
	env.waitState(pool, slot, lifecycle.Stopped)
	env.continued(pool.Name())
}

// What a sweep says of which workflow is a matter of its own tests.
func TestWhatIsTerminatedIsReplacedOrEnds(t *testing.T) {
	oneHost(t, "host").atOnce(map[string]func(*testEnv){
		"a leased worker": leasedWorker,
		"the sweeper, and workers that serve and rest":    sweeperAndWorkers,
		"a pool and its processes":                        poolAndItsProcesses,
		"a pool that is started again with fewer workers": poolStartedSmaller,
	})
}

// The pool has continued twice, and none of its workers is a child of its newest run.
func sweeperAndWorkers(env *testEnv) {
	pool := env.startPool(echoSpec("unswept", 2))
	before := env.waitReady(pool, 2)
	env.restAndContinue(pool, 1)
	env.continued("unswept")
	env.terminate(api.SweeperWorkflowID)
	for slot := range 2 {
		env.terminate(api.WorkerWorkflowID("unswept", slot))
	}
	env.waitFor(pool, "the terminated workers are replaced", func(v api.PoolWorkers) bool {
		return v.Ready == 2 && v.Workers[0].Incarnation > 1 && v.Workers[0].LeaseSeq > before.Workers[0].LeaseSeq &&
			v.Workers[1].Incarnation > 1
	})
}

// A pool has a worker that rests, and none is a child of its newest run.
func poolStartedSmaller(env *testEnv) {
	spec := echoSpec("smaller", 3)
	env.restAndContinue(env.startPool(spec), 1)
	env.terminate(api.PoolWorkflowID("smaller"))
	spec.Pool.Size = 2
	env.startPool(spec)
	env.requireWorkersEnd("smaller", 2)
}

// requireWorkersEnd waits until no workflow of a worker from slot first on is open.
func (env *testEnv) requireWorkersEnd(pool string, first int) {
	env.t.Helper()
	require.Eventually(env.t, func() bool {
		open, err := env.client.Temporal().ListOpenWorkflow(env.t.Context(),
			&workflowservice.ListOpenWorkflowExecutionsRequest{Namespace: env.client.Namespace()})
		return err == nil && !slices.ContainsFunc(open.GetExecutions(), func(e *workflow.WorkflowExecutionInfo) bool {
			name, slot, err := api.ParseWorkerName(strings.TrimPrefix(e.GetExecution().GetWorkflowId(), api.PoolWorkflowID("")))
			return err == nil && name == pool && slot >= first
		})
	}, waitTimeout, 100*time.Millisecond, "workers %d and above of pool %s end", first, pool)
}

func TestRunsOfSleepingWorkflowsAreContinuedByTheSweeper(t *testing.T) {
	env := oneHost(t, "host-a")
	pool := env.startPool(echoSpec("asleep", 2))
	before := env.waitState(pool, 0, lifecycle.Ready)
	env.signal(pool, 1, api.SignalStop, "it rests")
	env.waitState(pool, 1, lifecycle.Stopped)
	sweeps := &sweeper.Sweeper{Temporal: env.client.Temporal(), Namespace: env.client.Namespace()}
	started := time.Now()
	continued := 0
	require.Eventually(t, func() bool { // visibility lags
		n, err := sweeps.ContinueRunsBefore(t.Context(), started)
		continued += n
		return err == nil && continued >= 3 && n == 0
	}, waitTimeout, 100*time.Millisecond, "the pool and both workers, and none twice for long")
	for _, id := range []string{api.PoolWorkflowID("asleep"), api.WorkerWorkflowID("asleep", 0),
		api.WorkerWorkflowID("asleep", 1)} {
		require.Eventually(t, func() bool {
			info, err := env.describe(id)
			return err == nil && info.GetFirstRunId() != info.GetExecution().GetRunId()
		}, waitTimeout, 50*time.Millisecond, "%s continues as new", id)
	}
	view := env.waitFor(pool, "one worker is ready and one rests", func(v api.PoolWorkers) bool {
		return v.Workers[0].State == lifecycle.Ready && v.Workers[1].State == lifecycle.Stopped
	})
	require.Equal(t, before.Incarnation, view.Workers[0].Incarnation)
}
