package e2e

import (
	"os"
	"path/filepath"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

func changedFiles(env *testEnv) {
	t := env.t
	program, err := os.ReadFile(filepath.Join("testdata", "greet.py"))
	require.NoError(t, err)
	dir := t.TempDir()
	words := filepath.Join(dir, "words.py")
	write := func(text string) { // like an editor: write a copy and rename it
		require.NoError(t, os.WriteFile(words+"~", []byte(text), 0o600))
		require.NoError(t, os.Rename(words+"~", words))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "greet.py"), program, 0o600))
	write("GREETING = 'hello'\n")

	s := pythonSpec("files", 2, "greet.py")
	s.Pool.Dir, s.Watch.Paths, s.Watch.Debounce = dir, []string{"."}, spec.Duration(100*time.Millisecond)
	// longer than this test: only the file watch restarts a failed worker
	s.Recovery.BackoffInitial = spec.Duration(time.Hour)
	s.Recovery.BackoffMax = s.Recovery.BackoffInitial
	pool := env.startPool(s)
	client := env.gatewayClient("host")
	requireGreeting := func(want string) {
		for range 4 {
			status, answer, _ := post(t, client, "/v1/pools/files/call/greet", "null")
			require.Equal(t, 200, status, answer)
			require.Equal(t, `"`+want+`"`, answer)
		}
	}
	requireGreeting("hello")

	write("GREETING = 'good morning'\n")
	view := env.waitFor(pool, "both workers have restarted because of the file", func(v api.PoolWorkers) bool {
		return v.Ready == 2 && v.Rollout == nil && v.Workers[0].RotationsByReason["files"] == 1 &&
			v.Workers[1].RotationsByReason["files"] == 1
	})
	for _, worker := range view.Workers {
		require.Greater(t, worker.Incarnation, int64(1))
		require.Contains(t, worker.LastRotation.Reason, words)
	}
	requireGreeting("good morning")

	s.Watch.Mode = spec.WatchAll
	s.Rotation.Surge = false // with surge the old processes would stay in service
	_, err = pool.Apply(t.Context(), s)
	require.NoError(t, err)
	env.waitFor(pool, "the new spec is rolled out", func(v api.PoolWorkers) bool {
		return v.Ready == 2 && v.Rollout == nil && v.Workers[0].SpecVersion == 2 && v.Workers[1].SpecVersion == 2
	})
	write("GREETING = = 'broken'\n")
	env.waitFor(pool, "neither worker can start", func(v api.PoolWorkers) bool {
		return v.Ready == 0 && v.Workers[0].ConsecutiveFailures > 0 && v.Workers[1].ConsecutiveFailures > 0
	})
	write("GREETING = 'fixed'\n")
	env.waitReady(pool, 2)
	requireGreeting("fixed")
}
