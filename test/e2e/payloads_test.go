package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/cli"
	"github.com/tempool/tempool/lifecycle"
)

// sealedEnv is an environment whose client and agents encrypt what Temporal stores with the keys of a file.
func sealedEnv(t *testing.T) (env *testEnv, keys string) {
	env = newEnv(t)
	env.sealed = true
	keys = filepath.Join(env.dir, "keys")
	require.NoError(t, os.WriteFile(keys, []byte("bm90IGEgc2VjcmV0LCBvbmx5IGEga2V5IG9mIHRlc3Q=\n"), 0o600))
	var err error
	env.client, err = tempool.Dial(t.Context(), tempool.Options{
		Address: env.server.Address(), Namespace: env.server.Namespace(), Logger: newDiscardLogger(),
		Payloads: tempool.Payloads{KeyFile: keys},
	})
	require.NoError(t, err)
	t.Cleanup(env.client.Close)
	return env, keys
}

// executions are the runs that visibility has, of all workflows or by a query.
func (env *testEnv) executions(ctx context.Context, query string) (all []*workflow.WorkflowExecutionInfo) {
	env.t.Helper()
	for page := []byte(nil); ; {
		answer, err := env.client.Temporal().ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: env.client.Namespace(), Query: query, NextPageToken: page,
		})
		require.NoError(env.t, err)
		all = append(all, answer.GetExecutions()...)
		if page = answer.GetNextPageToken(); len(page) == 0 {
			return all
		}
	}
}

// stored returns what Temporal stores of all workflows: histories, memos, pending activities. It fails the test if a
// run has ended.
func (env *testEnv) stored() (all []byte) {
	env.t.Helper()
	for _, run := range env.executions(env.t.Context(), "") {
		id, runID := run.GetExecution().GetWorkflowId(), run.GetExecution().GetRunId()
		require.Contains(env.t, []enums.WorkflowExecutionStatus{enums.WORKFLOW_EXECUTION_STATUS_RUNNING,
			enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW}, run.GetStatus(), id)
		details, err := env.client.Temporal().DescribeWorkflowExecution(env.t.Context(), id, runID)
		require.NoError(env.t, err)
		events, err := env.readHistory(env.t.Context(), id, runID)
		require.NoError(env.t, err)
		for _, part := range []proto.Message{run, details, &history.History{Events: events}} {
			text, err := protojson.Marshal(part)
			require.NoError(env.t, err)
			all = append(all, text...)
		}
	}
	return all
}

func TestTemporalStoresNothingLegibleWithPayloadKeys(t *testing.T) {
	env, keys := sealedEnv(t)
	keyed := env.startAgent("keyed", "--payload-keys", keys)
	s := echoSpec("sealed", 2)
	s.Pool.Env["PASSWORD"] = "legible-in-env"
	s.Pool.EnvFrom = append(s.Pool.EnvFrom, "HOME")
	pool := env.startPool(s)

	lease := env.checkout(pool,
		tempool.CheckoutOptions{Holder: "legible-holder", Session: "legible-session", Wait: waitTimeout})
	require.Equal(t, "legible-session", lease.Session)
	require.NoError(t, env.client.Checkin(t.Context(),
		api.CheckinRequest{LeaseID: lease.ID, Outcome: api.OutcomeError, Error: "legible-reason"}))
	killProcess(t, env.waitState(pool, 0, lifecycle.Ready).PID)
	env.waitFor(pool, "the killed process was replaced", func(v api.PoolWorkers) bool {
		return v.Workers[0].Incarnation > 1 && v.Workers[0].State == lifecycle.Ready
	})
	env.restart(pool, api.RestartRequest{Reason: "legible-restart"})
	env.waitFor(pool, "the workers have restarted",
		func(v api.PoolWorkers) bool { return v.Rollout == nil && v.Ready == s.Pool.Size })
	stored := string(env.stored())
	require.NotContains(t, stored, "legible")
	require.NotContains(t, stored, "bGVnaWJsZ", "nor in base64")
	require.Contains(t, stored, "YmluYXJ5L2VuY3J5cHRlZA==", "the encoding is binary/encrypted")

	out, _ := env.ctl(cli.ExitOK, "history", "sealed/0", "--all", "--payload-keys", keys)
	require.Contains(t, out, "legible-restart")
	out, _ = env.ctl(cli.ExitOK, "ps", "--payload-keys", keys)
	require.Contains(t, out, "ready")
	_, failure := env.ctl(cli.ExitFailed, "pool", "status", "sealed")
	require.Contains(t, failure, "--payload-keys")

	// An agent without the keys would otherwise end each run that it is given as failed.
	env.startAgent("stranger", "--labels", "other")
	keyed.kill()
	worker := api.WorkerWorkflowID("sealed", 0)
	env.send(worker, api.SignalDrain, nil)
	require.Eventually(t, func() bool {
		details, err := env.client.Temporal().DescribeWorkflowExecution(t.Context(), worker, "")
		return err == nil && details.GetPendingWorkflowTask().GetAttempt() > 2
	}, waitTimeout, 100*time.Millisecond, "the agent without the keys was given the run, and failed its task")
	env.stored()
	env.startAgent("keyed", "--payload-keys", keys)
	env.waitReady(pool, s.Pool.Size)
	require.NoError(t, leaseOnce(t.Context(), pool))
	env.stored()
}
