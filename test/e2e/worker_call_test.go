package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

func TestEachWorkerOfAPoolCanBeCalledOnWhateverHostItLives(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("one", "--capacity", "2")
	env.startAgent("two", "--capacity", "2")
	pool := env.startPool(echoSpec("direct", 4))
	hosts := map[string]bool{}
	for _, worker := range env.waitReady(pool, 4).Workers {
		hosts[worker.Host] = true
	}
	require.Len(t, hosts, 2)
	for slot := range 4 {
		var answer tempool.Answer
		worker := pool.With(tempool.CallOptions{Answered: func(a tempool.Answer) { answer = a }}).Worker(slot)
		for i := range 3 {
			var got int
			require.NoError(t, worker.Call(t.Context(), "echo", i, &got))
			require.Equal(t, i, got)
			require.Equal(t, api.WorkerName("direct", slot), answer.Worker)
		}
	}
	require.ErrorIs(t, pool.Worker(9).Call(t.Context(), "echo", nil, nil), tempool.ErrWorkerNotFound)

	// A call waits for the next process of its worker.
	before, err := pool.State(t.Context(), 2)
	require.NoError(t, err)
	killProcess(t, before.PID)
	require.Eventually(t, func() bool {
		var got int
		return pool.Worker(2).Call(t.Context(), "echo", 7, &got) == nil && got == 7
	}, waitTimeout, 50*time.Millisecond)
	after, err := pool.State(t.Context(), 2)
	require.NoError(t, err)
	require.Greater(t, after.Incarnation, before.Incarnation)
}
