package e2e

import (
	"cmp"
	"encoding/json"
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
	"github.com/tempool/tempool/internal/cli"
	"github.com/tempool/tempool/sessions/redis/redistest"
	"github.com/tempool/tempool/spec"
)

// movers is the spec of a pool whose workers keep what they are told until a session leaves them. witness is where they leave word.
func movers(t *testing.T, name string, size int) (s spec.Spec, witness string) {
	s = python(name, size, "moving.py")
	witness = t.TempDir()
	s.Pool.Env["WITNESS"] = witness
	s.Lease.IdleReturn = spec.Duration(30 * time.Second) // or a session's worker may be away for a moment
	return s, witness
}

// servedBy has a session's call tell which worker serves it.
func servedBy(t *testing.T, c *http.Client, pool, session, value string) (worker string) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(must(t, c, "POST", "/v1/pools/"+pool+"/call/keep", `["`+value+`"]`, session)), &worker))
	return worker
}

// hooked are the hooks that ran on a worker, asked for under a lease so that it is this worker that answers.
func (w *world) hooked(pool *tempool.Pool, slot int) (ran struct{ Hooks, Kept []string }) {
	w.t.Helper()
	lease, err := pool.CheckoutOnce(w.t.Context(), slot, tempool.CheckoutOptions{Holder: "test"})
	require.NoError(w.t, err)
	require.NoError(w.t, lease.Call(w.t.Context(), "hooks", nil, &ran))
	require.NoError(w.t, lease.Checkin(w.t.Context(), api.OutcomeOK))
	return ran
}

func TestASessionMigratesWithWhatItsWorkerKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("moving")
	s, witness := movers(t, "move", 2)
	pool := w.start(s)
	client := w.over("moving")
	from := servedBy(t, client, "move", "mine", "of value")
	to := map[string]string{"move/0": "move/1", "move/1": "move/0"}[from]

	migration, err := pool.Session("mine").Migrate(t.Context(), api.MigrateSessionRequest{To: to})
	require.NoError(t, err)
	moves, err := migration.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, api.SessionMoves{
		Pool: "move", Session: "mine", Moved: 1, Flows: []api.SessionFlow{{From: from, To: to, Count: 1}},
	}, moves)
	require.Equal(t, `"of value"`, must(t, client, "POST", "/v1/pools/move/call/kept_here", `[]`, "mine"), "the new worker has it, and gets the calls")

	// Once more, to where it is.
	migration, err = pool.Session("mine").Migrate(t.Context(), api.MigrateSessionRequest{To: to})
	require.NoError(t, err)
	moves, err = migration.Wait(t.Context())
	require.NoError(t, err)
	require.Zero(t, moves.Moved)
	require.Contains(t, moves.Note, "already")

	_, unknown := w.ctl(cli.ExitFailed, "sessions", "migrate", "move", "nobodys", "--to", to)
	require.Contains(t, unknown, "pool move has no session nobodys")

	// A worker that dies while it loads a session gives it back to the one before.
	slow := ""
	for i := 0; slow == ""; i++ {
		require.Less(t, i, 100, "worker 0 gets no session at all")
		if id := fmt.Sprint("slow", i); servedBy(t, client, "move", id, "precious") == "move/0" {
			slow = id
		}
	}
	migration, err = pool.Session(slow).Migrate(t.Context(), api.MigrateSessionRequest{To: "move/1"})
	require.NoError(t, err)
	_, err = pool.Session(slow).Migrate(t.Context(), api.MigrateSessionRequest{To: "move/1"})
	require.ErrorIs(t, err, api.ErrBusy, "one migration of a session at a time")
	var pid int
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(witness, "loading"))
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(string(text))
		return err == nil
	}, patience, 10*time.Millisecond)
	kill(t, pid)
	_, err = migration.Wait(t.Context())
	require.ErrorIs(t, err, api.ErrWorkerCrashed)
	require.ErrorContains(t, err, "everything undone")
	migration, err = pool.Session(slow).Migrate(t.Context(), api.MigrateSessionRequest{To: "move/0"})
	require.NoError(t, err)
	moves, err = migration.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, "it is already bound to move/0", moves.Note, "the binding is where it was")
	ran := w.hooked(pool, 0)
	require.Equal(t, []string{"release " + slow, "load " + slow}, ran.Hooks[len(ran.Hooks)-2:])
	require.Contains(t, ran.Kept, slow)
}

func TestEvacuatingAWorkerUnderLoadFailsNoCallAndLeavesNoBinding(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("full")
	s, _ := movers(t, "evac", 3)
	w.start(s)
	client := w.over("full")
	const call = "/v1/pools/evac/call/"
	quiet := map[string]int{}
	for i := range 90 {
		quiet[servedBy(t, client, "evac", fmt.Sprint("quiet", i), fmt.Sprint("value", i))]++
	}
	full := slices.MaxFunc(slices.Sorted(maps.Keys(quiet)), func(a, b string) int { return cmp.Compare(quiet[a], quiet[b]) })

	stop := make(chan struct{})
	var callers sync.WaitGroup
	var calls atomic.Int64
	for i := range 6 {
		callers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				status, answer := visit(t, client, "POST", call+"keep", `["x"]`, fmt.Sprintf("busy%d-%d", i, n%20))
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
		defer close(stop)
		enough := func(n int64) {
			require.Eventually(t, func() bool { return calls.Load() >= n || t.Failed() }, patience, time.Millisecond)
		}
		enough(200)
		moves = told[api.SessionMoves](w, "sessions", "evacuate", full)
		enough(calls.Load() + 200)
		left = told[api.SessionMoves](w, "sessions", "evacuate", full)
	}()
	require.GreaterOrEqual(t, moves.Moved, quiet[full])
	require.Zero(t, moves.Skipped)
	for _, flow := range moves.Flows {
		require.Equal(t, full, flow.From)
		require.NotEqual(t, full, flow.To)
	}
	require.Zero(t, left.Moved, "nothing was bound to it any more, and nothing is since")
	for i := range 90 {
		session := fmt.Sprint("quiet", i)
		require.Equal(t, fmt.Sprintf(`"value%d"`, i), must(t, client, "POST", call+"kept_here", `[]`, session), "%s is with a worker that has it", session)
	}
}

func TestARebalancingMovesSessionsToAnotherHost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := newWorld(t)
	w.agent("here", "--capacity", "1")
	w.agent("there", "--capacity", "1")
	s, _ := movers(t, "even", 2)
	s.Sessions.Store, s.Sessions.URL = spec.StoreRedis, server.URL()
	w.start(s)
	here, there := w.over("here"), w.over("there")
	for i := range 10 {
		servedBy(t, here, "even", fmt.Sprint("s", i), "value")
	}
	moves := told[api.SessionMoves](w, "sessions", "rebalance", "even")
	require.Equal(t, 5, moves.Moved)
	require.Len(t, moves.Flows, 1)
	kept := map[*http.Client]int{}
	for i := range 10 {
		for _, host := range []*http.Client{here, there} {
			if must(t, host, "POST", "/v1/pools/even/call/kept_here", `[]`, fmt.Sprint("s", i)) == `"value"` {
				kept[host]++
			}
		}
	}
	require.Equal(t, map[*http.Client]int{here: 5, there: 5}, kept)
}
