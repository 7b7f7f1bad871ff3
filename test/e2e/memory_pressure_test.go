package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// setAvailableMemory sets a host's available memory in a fake /proc and /sys below root.
func setAvailableMemory(t *testing.T, root string, availablePercent int) {
	t.Helper()
	const total = 64 << 20 // kB
	dir := filepath.Join(root, "proc")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	content := fmt.Sprintf("MemTotal: %d kB\nMemAvailable: %d kB\n", total, total/100*availablePercent)
	next := filepath.Join(dir, "next")
	require.NoError(t, os.WriteFile(next, []byte(content), 0o600))
	require.NoError(t, os.Rename(next, filepath.Join(dir, "meminfo")))
}

// waitForLog waits until the agent's log has a line with all of these words.
func (a *agent) waitForLog(words ...string) {
	a.t.Helper()
	require.Eventually(a.t, func() bool {
		content, err := os.ReadFile(a.log)
		return err == nil && slices.ContainsFunc(strings.Split(string(content), "\n"), func(line string) bool {
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
		})
	}, waitTimeout, 100*time.Millisecond, "the agent's log has no line with %q", words)
}

func TestMemoryPressureStopsHalfOfTheWorkersLargestFirst(t *testing.T) {
	env := newEnv(t)
	root := filepath.Join(env.dir, "memory")
	setAvailableMemory(t, root, 50)
	agent := env.startAgent("tight", "--memory-root", root)
	s := pythonSpec("tight", 4, "hold.py")
	s.Limits.Memory, s.Prediction.Enabled = 1<<30, false
	pool := env.startPool(s)
	client := env.gatewayClient("tight")
	mustRequest(t, client, "POST", "/v1/pools/tight/call/hold", "150", "")
	largest := -1
	view := env.waitFor(pool, "a sample shows which worker is the largest", func(v api.PoolWorkers) bool {
		largest = slices.IndexFunc(v.Workers, func(x api.Worker) bool { return x.CurrentMemoryBytes > 150<<20 })
		return largest >= 0
	})
	limit := func(v api.PoolWorkers, slot int) string { return v.Workers[slot].Limits["memory"] }
	require.Contains(t, []string{"cgroup", "sampler"}, limit(view, largest))

	setAvailableMemory(t, root, 12)
	agent.waitForLog("memory pressure", `"level":"medium","before":"none"`, "12 % of the host's memory")
	agent.waitForLog("session caches dropped")
	agent.waitForLog("worker collected garbage", `"worker":"tight/0"`)
	view, err := pool.Workers(t.Context())
	require.NoError(t, err)
	require.Equal(t, 4, view.Ready, "medium pressure stops no worker")

	setAvailableMemory(t, root, 3)
	agent.waitForLog("memory pressure", `"level":"critical","before":"medium"`)
	agent.waitForLog("memory limit lowered", fmt.Sprintf(`"worker":"tight/%d"`, largest))
	parked := until(env, "not two are stopped", pool.Status,
		func(s api.PoolStatus) bool { return len(s.StoppedForMemory) == 2 }).StoppedForMemory
	require.Equal(t, largest, parked[0], "the largest worker stops first")
	env.waitFor(pool, "two workers are down", func(v api.PoolWorkers) bool { return v.Ready == 2 })
	status, answer, _ := post(t, client, "/v1/pools/tight/call/hold", "0")
	require.Equal(t, http.StatusOK, status, "the remaining workers serve: %s", answer)
	require.Equal(t, lifecycle.Stopped, env.waitState(pool, largest, lifecycle.Stopped).State)
	history := env.history(pool, largest)
	require.True(t, slices.ContainsFunc(history, func(step lifecycle.Transition) bool {
		return step.Event == lifecycle.Drain && strings.Contains(step.Reason, "memory pressure on host")
	}), "%+v", history)
	require.Eventually(t, func() bool { return len(hostProcesses("tight")) == 2 }, waitTimeout, 50*time.Millisecond,
		"processes")
}
