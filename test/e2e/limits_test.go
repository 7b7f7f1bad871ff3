package e2e

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func TestLimitsApplyAndAWorkerOverItsMemoryLimitIsReplaced(t *testing.T) {
	env := oneHost(t, "limits")
	s := pythonSpec("limited", 2, "hold.py")
	s.Limits.Memory, s.Limits.OpenFiles, s.Limits.Nice = 150<<20, 200, 3
	s.Prediction.Enabled = false
	pool := env.startPool(s)
	view := env.waitReady(pool, 2)
	for _, worker := range view.Workers {
		require.Equal(t, "rlimit", worker.Limits["open_files"])
		require.Equal(t, "scheduler", worker.Limits["nice"])
		require.Contains(t, []string{"cgroup", "sampler"}, worker.Limits["memory"])
	}

	client := env.gatewayClient("limits")
	status, answer, _ := post(t, client, "/v1/pools/limited/call/hold", "160")
	if view.Workers[0].Limits["memory"] == "cgroup" { // the kernel enforces the limit immediately
		require.NotEqual(t, http.StatusOK, status, answer)
	} else {
		require.Equal(t, http.StatusOK, status, answer)
	}
	view = env.waitFor(pool, "one worker has been replaced", func(v api.PoolWorkers) bool {
		return v.Ready == 2 && v.Workers[0].Incarnation+v.Workers[1].Incarnation > 2
	})
	if view.Workers[0].Limits["memory"] == "sampler" {
		require.EqualValues(t, 1, view.Workers[0].RotationsByReason["limits"]+view.Workers[1].RotationsByReason["limits"])
		events := env.followEvents("limits")
		require.Eventually(t, func() bool {
			return slices.Contains(append(events.steps("limited/0"), events.steps("limited/1")...), api.EventLimitExceeded)
		}, waitTimeout, 50*time.Millisecond)
	}

	// a process that its agent kills for a reason of its own has failed, also while it is replaced
	failed := func(v api.PoolWorkers) (n int64) {
		for _, worker := range v.Workers {
			n += worker.EndedByOutcome[string(lifecycle.Failed)]
		}
		return n
	}
	before := failed(view)
	env.waitFor(pool, "a worker far over its limit has been killed", func(v api.PoolWorkers) bool {
		killed := failed(v) > before
		if !killed { // the call may return before the sampler runs, and may have reached a process that was being replaced
			_, _, _ = post(t, client, "/v1/pools/limited/call/hold", "400")
		}
		return v.Ready == 2 && killed
	})
}
