package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestAWorkerCostsFewEvents(t *testing.T) {
	oneHost(t, "host").atOnce(map[string]func(*testEnv){
		"until it is ready":     eventsUntilReady,
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
		events := env.acceptedEvents(api.WorkerWorkflowID(pool.Name(), slot))
		require.LessOrEqual(t, len(events), 12, "%v", events)
	}
	until(env, "the agent has not reported to the pool", pool.Status, func(s api.PoolStatus) bool {
		return s.Ready == 3 && s.Workers[0].Host == "host" && s.Workers[0].PID > 0
	})
}
