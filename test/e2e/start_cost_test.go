package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// A worker's workflow has twelve events when it is ready: its start (1), the task that starts the process (3), the activity Start (3), the task
// that takes its result (3), a timer and the search attributes.
func TestAWorkerIsReadyAfterTwelveEvents(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("thrifty")
	pool := env.startPool(echoSpec("thrifty", 3))
	for slot := range 3 {
		description, err := env.client.Temporal().DescribeWorkflowExecution(t.Context(), api.WorkerWorkflowID(pool.Name(), slot), "")
		require.NoError(t, err)
		require.LessOrEqual(t, description.GetWorkflowExecutionInfo().GetHistoryLength(), int64(12))
	}
	require.Eventually(t, func() bool { // by what the agent has reported to the pool
		status, err := pool.Status(t.Context())
		require.NoError(t, err)
		return status.Ready == 3 && status.Workers[0].Host == "thrifty" && status.Workers[0].PID > 0
	}, waitTimeout, 50*time.Millisecond)
}
