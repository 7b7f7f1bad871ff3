package e2e

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/codemetrics"
	"github.com/tempool/tempool/lifecycle"
)

// startCodeMetrics starts the example pool and returns the configuration of its job, and the size of its input in
// bytes.
func (env *testEnv) startCodeMetrics() (*tempool.Pool, codemetrics.Config, int64) {
	env.t.Helper()
	s := loadSpec(env.t, "../../examples/codemetrics")
	pool := env.startPool(s)
	library, err := codemetrics.StandardLibrary(env.t.Context())
	require.NoError(env.t, err)
	var bytes int64
	for _, file := range library.Files {
		info, err := os.Stat(file)
		require.NoError(env.t, err)
		bytes += info.Size()
	}
	return pool, codemetrics.Config{Client: env.client, Pool: pool.Name(), Files: library.Files, Concurrency: s.Pool.Size,
			Patience: waitTimeout},
		bytes
}

func TestACodeMetricsJobCountsEachFileOnceDespiteCrashes(t *testing.T) {
	env := newEnv(t)
	hostAgent := env.startAgent("job")
	pool, config, bytes := env.startCodeMetrics()

	undisturbed, err := codemetrics.Run(t.Context(), config)
	require.NoError(t, err)
	require.Equal(t, len(config.Files), undisturbed.Files)
	require.Equal(t, bytes, undisturbed.Bytes)
	require.Greater(t, undisturbed.Lines, int64(100_000))
	t.Logf("%d files, %d lines in %s, %d problems", undisturbed.Files, undisturbed.Lines, undisturbed.Took,
		undisturbed.Problems)

	// While the job runs, two workers are killed, then the agent, then the Temporal server.
	var once sync.Map
	at := func(done, share float64, name string, do func()) {
		if done >= share {
			if _, done := once.LoadOrStore(name, true); !done {
				do()
			}
		}
	}
	killWorker := func() {
		for !killRandomWorker("job") { // the process that was chosen may have exited already
			sleep(t, time.Millisecond)
		}
	}
	var restarts sync.WaitGroup
	config.Progress = func(sum codemetrics.Summary) {
		done := float64(sum.Files) / float64(len(config.Files))
		at(done, 0.1, "a worker", killWorker)
		at(done, 0.3, "another worker", killWorker)
		at(done, 0.5, "the agent", func() {
			hostAgent.kill()
			hostAgent = env.startAgent("job")
		})
		at(done, 0.7, "the server", func() {
			require.NoError(t, env.server.Kill())
			restarts.Go(func() { require.NoError(t, env.server.Restart(context.Background())) })
		})
	}
	disturbed, err := codemetrics.Run(t.Context(), config)
	restarts.Wait()
	require.NoError(t, err)
	for _, event := range []string{"a worker", "another worker", "the agent", "the server"} {
		_, happened := once.Load(event)
		require.True(t, happened, event)
	}
	t.Logf("disturbed: took %s, %d calls retried", disturbed.Took, disturbed.Retried)
	require.Equal(t, undisturbed.Files, disturbed.Files)
	require.Equal(t, undisturbed.Bytes, disturbed.Bytes)
	require.Equal(t, undisturbed.Lines, disturbed.Lines)
	require.Equal(t, undisturbed.Functions, disturbed.Functions)
	require.Equal(t, undisturbed.Complexity, disturbed.Complexity)
	env.waitFor(pool, "every worker is idle", func(v api.PoolWorkers) bool {
		for _, worker := range v.Workers {
			if worker.State != lifecycle.Ready {
				return false
			}
		}
		return true
	})
	env.stopPool(pool)
	require.Empty(t, hostProcesses("job"))
}
