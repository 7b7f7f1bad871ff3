package e2e

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

func illProgram(env *testEnv) {
	t := env.t
	s := pythonSpec("own-health", 1, "health.py")
	s.Health.Interval = spec.Duration(time.Hour)
	pool := env.startPool(s)

	// By a call of the pool.
	require.NoError(t, pool.Call(t.Context(), "report", []string{"the disk is slow"}, nil))
	env.waitTransition(pool, 0, lifecycle.Degraded, "the disk is slow")
	env.waitState(pool, 0, lifecycle.Ready) // the next ping passes
	var echoed int
	require.NoError(t, pool.Call(t.Context(), "echo", []int{7}, &echoed))
	require.Equal(t, 7, echoed)

	// Under a client's lease: at its end.
	lease := env.checkout(pool, tempool.CheckoutOptions{Holder: "me", Wait: waitTimeout})
	require.NoError(t, lease.Call(t.Context(), "report", []string{"the network is slow"}, nil))
	state := env.waitWorker(pool, 0, "is well",
		func(w api.WorkerState) bool { return w.Health == lifecycle.Unhealthy })
	require.Equal(t, lifecycle.Busy, state.State)
	require.NoError(t, lease.Call(t.Context(), "echo", []int{8}, &echoed), "its holder keeps it")
	require.NoError(t, lease.Call(t.Context(), "fall_ill", nil, nil))
	require.NoError(t, lease.Checkin(t.Context(), tempool.OutcomeOK))
	env.waitTransition(pool, 0, lifecycle.Degraded, "the network is slow")

	// Its pings fail from now on.
	view := env.waitLater(pool, "the process is replaced", lease.Incarnation)
	require.Len(t, view.Workers, 1)
	replaced := noted(env.history(pool, 0), lifecycle.Unhealthy)
	require.NotEmpty(t, replaced)
	require.Contains(t, replaced[len(replaced)-1], "RuntimeError: the GPU is gone")
}
