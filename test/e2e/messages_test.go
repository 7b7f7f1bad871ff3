package e2e

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/sessions"
)

// sessionWorkflow runs a workflow that moves sessions, and requires that it continues as new on its way.
func (env *testEnv) sessionWorkflow(id, name string, run any) (moves api.SessionMoves) {
	env.t.Helper()
	require.NoError(env.t, env.execute(id, api.TaskQueue, name, run).Get(env.t.Context(), &moves))
	last := asked(env, func(context.Context) (*workflow.WorkflowExecutionInfo, error) { return env.describe(id) })
	require.NotEqual(env.t, last.GetFirstRunId(), last.GetExecution().GetRunId(), "%s continued as new", id)
	return moves
}

// update sends a pool an update for which the client has no method, once if it has an id.
func (env *testEnv) update(ctx context.Context, pool, name, id string, argument any) error {
	handle, err := env.client.Temporal().UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: api.PoolWorkflowID(pool), UpdateName: name, UpdateID: id, Args: []any{argument},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err != nil {
		return err
	}
	return handle.Get(ctx, nil)
}

// Sessions move to another worker and back by workflows that continue as new after each page, and a lease is renewed;
// then the pool drains the worker and restarts it.
func sessionWorkflowsContinue(env *testEnv) {
	t := env.t
	s, _ := movingSpec(t, "drained", 2)
	pool := env.startPool(s)
	gateway := env.gatewayClient("host")
	const count = 1_100 // more than a page of one worker
	var onWorker [2]atomic.Int64
	var clients errgroup.Group
	clients.SetLimit(8)
	for i := range count {
		clients.Go(func() error {
			_, slot, err := api.ParseWorkerName(storeInSession(t, gateway, "drained", fmt.Sprint("s", i),
				fmt.Sprint("value", i)))
			if err == nil {
				onWorker[slot].Add(1)
			}
			return err
		})
	}
	require.NoError(t, clients.Wait())
	require.False(t, t.Failed())
	worker, none := 0, spec.Duration(0)
	if onWorker[1].Load() > onWorker[0].Load() {
		worker = 1
	}
	moves := env.sessionWorkflow(api.EvacuateWorkerWorkflowID("drained", worker), api.WorkflowEvacuateWorker,
		sessions.EvacuateRun{Pool: "drained", EvacuateRequest: api.EvacuateRequest{Worker: worker, ExcludeFor: &none},
			ContinueEvery: 1})
	require.EqualValues(t, onWorker[worker].Load(), moves.Moved)
	moves = env.sessionWorkflow(api.RebalanceSessionsWorkflowID("drained"), api.WorkflowRebalanceSessions,
		sessions.RebalanceRun{RebalanceSessionsRequest: api.RebalanceSessionsRequest{Pool: "drained"}, ContinueEvery: 1})
	require.Equal(t, count/2, moves.Moved)
	migration, err := pool.Evacuate(t.Context(), api.EvacuateRequest{Worker: worker})
	require.NoError(t, err)
	moves, err = migration.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, count/2, moves.Moved)
	for i := range 20 {
		require.Equal(t, fmt.Sprintf(`"value%d"`, i),
			mustRequest(t, gateway, "POST", "/v1/pools/drained/call/kept_here", `[]`, fmt.Sprint("s", i)))
	}

	lease := asked(env, func(ctx context.Context) (*tempool.Lease, error) { // refused while the gateway has calls of it
		return pool.CheckoutOnce(ctx, worker, tempool.CheckoutOptions{Holder: "me", TTL: time.Minute, NoRenew: true})
	})
	expires := lease.Expires()
	require.NoError(t, lease.Renew(t.Context()))
	require.True(t, lease.Expires().After(expires))
	require.NoError(t, lease.Checkin(t.Context(), api.OutcomeOK))

	before := env.waitState(pool, worker, lifecycle.Ready)
	env.repeat(func(ctx context.Context) error {
		return env.update(ctx, "drained", api.UpdateDrain, "maintenance",
			api.Control{Worker: &worker, Reason: "maintenance"})
	})
	env.waitState(pool, worker, lifecycle.Stopped)
	env.restart(pool, api.RestartRequest{Worker: &worker, Reason: "maintenance is over"})
	after := env.waitState(pool, worker, lifecycle.Ready)
	require.Greater(t, after.Incarnation, before.Incarnation)
}
