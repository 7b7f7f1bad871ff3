package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/cli"
	"github.com/tempool/tempool/spec"
)

// movingSpec is the spec of a pool whose workers keep session data in memory until the session moves. They write marker
// files to markers.
func movingSpec(t *testing.T, name string, size int) (s spec.Spec, markers string) {
	s = pythonSpec(name, size, "moving.py")
	markers = t.TempDir()
	s.Pool.Env["MARKERS"] = markers
	s.Sessions.AffinityTTL = spec.Duration(time.Hour) // also on a machine that takes minutes to move them
	return s, markers
}

// storeInSession stores a value in the memory of the session's worker, and returns the worker.
func storeInSession(t *testing.T, c *http.Client, pool, session, value string) string {
	t.Helper()
	return decode[string](t, mustRequest(t, c, "POST", "/v1/pools/"+pool+"/call/keep", `["`+value+`"]`, session))
}

// hooksOf returns the hooks that ran on a worker. It leases the worker to reach it.
func (env *testEnv) hooksOf(pool *tempool.Pool, slot int) (ran struct{ Hooks, Kept []string }) {
	env.t.Helper()
	lease := env.checkout(pool, tempool.CheckoutOptions{Holder: "test", Slot: &slot, Wait: waitTimeout})
	require.NoError(env.t, lease.Call(env.t.Context(), "hooks", nil, &ran))
	require.NoError(env.t, lease.Checkin(env.t.Context(), api.OutcomeOK))
	return ran
}

func TestSessionsMigrateAndAreReleased(t *testing.T) {
	oneHost(t, "host").atOnce(map[string]func(*testEnv){
		"with their state in the worker":                                sessionMigrates,
		"from a worker under load":                                      workerIsEvacuated,
		"by workflows that continue as new, and a pool drains a worker": sessionWorkflowsContinue,
		"after an orderly end":                                          releasedBeforeAnEnd,
		"after their worker was idle, and is to go":                     releasedByAnIdleWorker,
	})
}

// migrated is the result of a migration of a session to a worker.
func (env *testEnv) migrated(pool *tempool.Pool, session, to string) api.SessionMoves {
	env.t.Helper()
	migration, err := pool.Session(session).Migrate(env.t.Context(), api.MigrateSessionRequest{To: to})
	require.NoError(env.t, err)
	moves, err := migration.Wait(env.t.Context())
	require.NoError(env.t, err)
	return moves
}

func sessionMigrates(env *testEnv) {
	t := env.t
	s, markers := movingSpec(t, "move", 2)
	pool := env.startPool(s)
	client := env.gatewayClient("host")
	from := storeInSession(t, client, "move", "mine", "of value")
	to := map[string]string{"move/0": "move/1", "move/1": "move/0"}[from]

	require.Equal(t, api.SessionMoves{
		Pool: "move", Session: "mine", Moved: 1, Flows: []api.SessionFlow{{From: from, To: to, Count: 1}},
	}, env.migrated(pool, "mine", to))
	require.Equal(t, `"of value"`, mustRequest(t, client, "POST", "/v1/pools/move/call/kept_here", `[]`, "mine"),
		"the new worker has the value and gets the calls")

	_, unknown := env.ctl(cli.ExitFailed, "sessions", "migrate", "move", "nobodys", "--to", to)
	require.Contains(t, unknown, "pool move has no session nobodys")

	// If a worker dies while it loads a session, the session stays with its previous worker.
	const slow = "slow"
	storeInSession(t, client, "move", slow, "precious")
	env.migrated(pool, slow, "move/0") // unless it is there
	migration, err := pool.Session(slow).Migrate(t.Context(), api.MigrateSessionRequest{To: "move/1"})
	require.NoError(t, err)
	_, err = pool.Session(slow).Migrate(t.Context(), api.MigrateSessionRequest{To: "move/1"})
	require.ErrorIs(t, err, api.ErrBusy, "one migration of a session at a time")
	killProcess(t, asked(env, func(context.Context) (int, error) {
		text, _ := os.ReadFile(filepath.Join(markers, "loading"))
		return strconv.Atoi(string(text))
	}))
	_, err = migration.Wait(t.Context())
	require.ErrorIs(t, err, api.ErrWorkerCrashed)
	require.ErrorContains(t, err, "everything undone")
	require.Equal(t, "it is already bound to move/0", env.migrated(pool, slow, "move/0").Note,
		"the session is still bound to its worker")
	ran := env.hooksOf(pool, 0)
	require.Equal(t, []string{"release " + slow, "load " + slow}, ran.Hooks[len(ran.Hooks)-2:])
	require.Contains(t, ran.Kept, slow)
}

func workerIsEvacuated(env *testEnv) {
	t := env.t
	s, _ := movingSpec(t, "evac", 3)
	env.startPool(s)
	client := env.gatewayClient("host")
	const call = "/v1/pools/evac/call/"
	quiet := map[string]int{}
	for i := range 90 {
		quiet[storeInSession(t, client, "evac", fmt.Sprint("quiet", i), fmt.Sprint("value", i))]++
	}
	full := slices.MaxFunc(slices.Sorted(maps.Keys(quiet)),
		func(a, b string) int { return cmp.Compare(quiet[a], quiet[b]) })

	var callers sync.WaitGroup
	var calls atomic.Int64
	var stopped atomic.Bool
	for i := range 6 {
		callers.Go(func() {
			for n := 0; !stopped.Load(); n++ {
				status, answer := request(t, client, "POST", call+"keep", `["x"]`, fmt.Sprintf("busy%d-%d", i, n%20))
				if calls.Add(1); status != http.StatusOK {
					t.Errorf("a call failed: %d %s", status, answer)
					return
				}
			}
		})
	}
	var moves, left api.SessionMoves
	func() {
		defer callers.Wait()
		defer stopped.Store(true)
		enough := func(n int64) {
			require.Eventually(t, func() bool { return calls.Load() >= n || t.Failed() }, waitTimeout, time.Millisecond)
		}
		enough(200)
		moves = ctlJSON[api.SessionMoves](env, "sessions", "evacuate", full)
		enough(calls.Load() + 200)
		left = ctlJSON[api.SessionMoves](env, "sessions", "evacuate", full)
	}()
	require.GreaterOrEqual(t, moves.Moved, quiet[full])
	require.Zero(t, moves.Skipped)
	for _, flow := range moves.Flows {
		require.Equal(t, full, flow.From)
		require.NotEqual(t, full, flow.To)
	}
	require.Zero(t, left.Moved, "the worker had no session left and got no new one")
	for i := range 90 {
		session := fmt.Sprint("quiet", i)
		require.Equal(t, fmt.Sprintf(`"value%d"`, i), mustRequest(t, client, "POST", call+"kept_here", `[]`, session),
			"the worker of %s has its value", session)
	}
}
