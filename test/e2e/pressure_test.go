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

// memory is a host's memory as the test wants it: the folder has what proc and sysfs would say.
func memory(t *testing.T, root string, availablePercent int) {
	t.Helper()
	const total = 64 << 20 // kB
	dir := filepath.Join(root, "proc")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	content := fmt.Sprintf("MemTotal: %d kB\nMemAvailable: %d kB\n", total, total/100*availablePercent)
	next := filepath.Join(dir, "next")
	require.NoError(t, os.WriteFile(next, []byte(content), 0o600))
	require.NoError(t, os.Rename(next, filepath.Join(dir, "meminfo")))
}

// said waits until the agent's log has a line with all of these words.
func (a *agent) said(words ...string) {
	a.t.Helper()
	require.Eventually(a.t, func() bool {
		content, err := os.ReadFile(a.log)
		return err == nil && slices.ContainsFunc(strings.Split(string(content), "\n"), func(line string) bool {
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
		})
	}, patience, 100*time.Millisecond, "the agent does not say %q", words)
}

func TestAHostShortOfMemoryStopsHalfOfItsWorkersLargestFirstAndBringsThemBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := filepath.Join(w.dir, "memory")
	memory(t, root, 50)
	agent := w.agent("tight", "--memory-root", root)
	s := python("tight", 4, "hold.py")
	s.Limits.Memory, s.Prediction.Enabled = 1<<30, false
	pool := w.start(s)
	client := w.over("tight")
	status, answer, _ := post(t, client, "/v1/pools/tight/call/hold", "150")
	require.Equal(t, http.StatusOK, status, answer)
	largest := -1
	view := w.until(pool, "a sample shows which worker is the largest", func(v api.PoolWorkers) bool {
		largest = slices.IndexFunc(v.Workers, func(x api.Worker) bool { return x.CurrentMemoryBytes > 150<<20 })
		return largest >= 0
	})
	limit := func(v api.PoolWorkers, slot int) string { return v.Workers[slot].Limits["memory"] }
	require.Contains(t, []string{"cgroup", "sampler"}, limit(view, largest))

	memory(t, root, 12)
	agent.said("memory pressure", `"level":"medium","before":"none"`, "12 % of the host's memory")
	agent.said("session caches were dropped")
	agent.said("a worker has collected garbage", `"worker":"tight/0"`)
	view, err := pool.Workers(t.Context())
	require.NoError(t, err)
	require.Equal(t, 4, view.Ready, "medium stops nobody")

	memory(t, root, 3)
	agent.said("memory pressure", `"level":"critical","before":"medium"`)
	agent.said("a memory limit was lowered", fmt.Sprintf(`"worker":"tight/%d"`, largest))
	parked := func() []int {
		st, err := pool.Status(t.Context())
		require.NoError(t, err)
		return st.Parked
	}
	require.Eventually(t, func() bool { return len(parked()) > 0 }, patience, 50*time.Millisecond)
	require.Equal(t, largest, parked()[0], "the largest goes first")
	// The agent says it again after 15 s: what is down by then is all that may be.
	least := 4
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); pause(t, 100*time.Millisecond) {
		view, err := pool.Workers(t.Context())
		require.NoError(t, err)
		least = min(least, view.Ready)
		require.GreaterOrEqual(t, view.Ready, 2, "more than half of the workers are gone: %+v", view)
		status, answer, _ := post(t, client, "/v1/pools/tight/call/hold", "0")
		require.Equal(t, http.StatusOK, status, "those that are left serve: %s", answer)
	}
	require.Equal(t, 2, least)
	require.Len(t, parked(), 2)
	require.Equal(t, lifecycle.Stopped, w.state(pool, largest, lifecycle.Stopped).State)
	history, err := pool.History(t.Context(), largest)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(history, func(step lifecycle.Transition) bool {
		return step.Event == lifecycle.Drain && strings.Contains(step.Reason, "memory pressure on host")
	}), "%+v", history)
	require.Len(t, bearers("tight"), 2, "processes")

	memory(t, root, 50) // and a minute later
	view = w.ready(pool, 4)
	require.Empty(t, parked())
	require.EqualValues(t, 2, view.Workers[largest].Incarnation)
	require.EqualValues(t, 1, view.Workers[largest].RestartsByReason["pressure"]+view.Workers[largest].RotationsByReason["pressure"])
	agent.said("memory pressure", `"level":"none","before":"critical"`)
}
