package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

var readyAfter = regexp.MustCompile(`ready after (\d+) ms`)

// TestAWorkerThatIsKilledAgainAndAgainIsBackAtOnce kills a worker every few seconds. Its life before does not count against it.
func TestAWorkerThatIsKilledAgainAndAgainIsBackAtOnce(t *testing.T) {
	t.Parallel()
	const (
		kills = 7 // the default backoff of the seventh failure in a row of short-lived processes is 24 s
		every = 2 * time.Second
		most  = 12 * time.Second // besides the spawn, on a machine that does much else
	)
	env := newEnv(t)
	env.startAgent("killed")
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
	history, err := pool.History(t.Context(), 0)
	require.NoError(t, err)
	var waits []time.Duration
	var exited time.Time
	for _, step := range history {
		switch step.Event {
		case lifecycle.Exited:
			exited = step.Timestamp
		case lifecycle.StartSucceeded:
			if exited.IsZero() {
				continue // the first start
			}
			took := readyAfter.FindStringSubmatch(step.Reason)
			require.NotNil(t, took, step.Reason)
			spawn, err := strconv.Atoi(took[1])
			require.NoError(t, err)
			waits = append(waits, step.Timestamp.Sub(exited)-time.Duration(spawn)*time.Millisecond)
		}
	}
	require.Len(t, waits, kills)
	t.Logf("from the exit of the process until the next one is ready, less its spawn: %v", waits)
	require.Less(t, slices.Max(waits), most)
}
