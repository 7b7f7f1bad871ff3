package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

var restartingIn = regexp.MustCompile(`^Restarting in (\S+) \(`)

// TestAWorkerThatIsKilledAgainAndAgainIsBackAtOnce kills a worker every few seconds. Its life before does not count
// against it: no backoff grows.
func TestAWorkerThatIsKilledAgainAndAgainIsBackAtOnce(t *testing.T) {
	const (
		kills = 7 // the default backoff of the seventh failure in a row of short-lived processes is 24 s
		every = 2 * time.Second
		most  = time.Second // of a backoff
	)
	env := oneHost(t, "killed")
	pool := env.startPool(echoSpec("killed", 1))
	l := startLoad(t, env.gatewayClient("killed"), "/v1/pools/killed/call/echo", 20, 1)
	for n := range kills {
		sleep(t, every) // the life of the process
		state, err := pool.State(t.Context(), 0)
		require.NoError(t, err)
		require.EqualValues(t, n+1, state.Incarnation)
		require.NoError(t, syscall.Kill(state.PID, syscall.SIGKILL))
		env.waitFor(pool, fmt.Sprintf("incarnation %d is ready, and the pool knows it", n+2), func(v api.PoolWorkers) bool {
			return v.Ready == 1 && v.Workers[0].Incarnation == int64(n+2) && v.Workers[0].State.InService()
		})
	}
	l.stop()
	history := env.history(pool, 0)
	exits := 0
	var backoffs []time.Duration
	for _, step := range history {
		switch step.Event {
		case lifecycle.Exited:
			exits++
		case lifecycle.Hold:
			found := restartingIn.FindStringSubmatch(step.Reason)
			require.NotNil(t, found, "it waits for nothing but a backoff: %s", step.Reason)
			backoff, err := time.ParseDuration(found[1])
			require.NoError(t, err)
			backoffs = append(backoffs, backoff)
		}
	}
	require.Equal(t, kills, exits)
	t.Logf("backoffs: %v", backoffs)
	require.NotEmpty(t, backoffs)
	require.LessOrEqual(t, slices.Max(backoffs), most)
}
