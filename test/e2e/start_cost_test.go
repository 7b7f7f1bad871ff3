package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.temporal.io/api/enums/v1"

	"github.com/tempool/tempool/api"
)

// repeatedTaskEvents bounds the events of workflow tasks that failed or timed out, which Temporal repeats: any of them
// may, on any server.
func repeatedTaskEvents(byType map[enums.EventType]int) int {
	return 3 * (byType[enums.EVENT_TYPE_WORKFLOW_TASK_FAILED] + byType[enums.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT])
}

func TestAWorkerCostsFewEvents(t *testing.T) {
	oneHost(t, "host").atOnce(map[string]func(*testEnv){
		"until it is ready":     eventsUntilReady,
		"a lease":               eventsOfALease,
		"a day without work":    eventsOfAnIdleWorker,
		"a checkout under load": eventsOfACheckoutUnderLoad,
	})
}

// A worker's workflow has twelve events when it is ready: its start (1), the task that starts the process (3), the
// activity Start (3), the task that takes its result (3), a timer and the search attributes.
func eventsUntilReady(env *testEnv) {
	t := env.t
	pool := env.startPool(echoSpec("thrifty", 3))
	for slot := range 3 {
		n, byType := env.countEvents(api.WorkerWorkflowID(pool.Name(), slot))
		require.LessOrEqual(t, n-repeatedTaskEvents(byType), 12, "%v", byType)
	}
	require.Eventually(t, func() bool { // by what the agent has reported to the pool
		status, err := pool.Status(t.Context())
		return err == nil && status.Ready == 3 && status.Workers[0].Host == "host" && status.Workers[0].PID > 0
	}, waitTimeout, 50*time.Millisecond)
}
