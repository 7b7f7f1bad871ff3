package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/spec"
)

// movers is the spec of a pool whose workers keep what they are told until a session leaves them. witness is where they leave word.
func movers(t *testing.T, name string, size int) (s spec.Spec, witness string) {
	s = python(name, size, "moving.py")
	witness = t.TempDir()
	s.Pool.Env["WITNESS"] = witness
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
	require.NoError(w.t, lease.Checkin(w.t.Context(), tempool.OutcomeOK))
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

	migration, err := pool.Session("mine").Migrate(t.Context(), tempool.MigrateSessionRequest{To: to})
	require.NoError(t, err)
	moves, err := migration.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, tempool.SessionMoves{
		Pool: "move", Session: "mine", Moved: 1, Flows: []tempool.SessionFlow{{From: from, To: to, Count: 1}},
	}, moves)
	require.Equal(t, `"of value"`, must(t, client, "POST", "/v1/pools/move/call/kept_here", `[]`, "mine"), "the new worker has it, and gets the calls")

	// Once more, to where it is.
	migration, err = pool.Session("mine").Migrate(t.Context(), tempool.MigrateSessionRequest{To: to})
	require.NoError(t, err)
	moves, err = migration.Wait(t.Context())
	require.NoError(t, err)
	require.Zero(t, moves.Moved)
	require.Contains(t, moves.Note, "already")

	// A worker that dies while it loads a session gives it back to the one before.
	slow := ""
	for i := 0; slow == ""; i++ {
		if id := fmt.Sprint("slow", i); servedBy(t, client, "move", id, "precious") == "move/0" {
			slow = id
		}
	}
	migration, err = pool.Session(slow).Migrate(t.Context(), tempool.MigrateSessionRequest{To: "move/1"})
	require.NoError(t, err)
	_, err = pool.Session(slow).Migrate(t.Context(), tempool.MigrateSessionRequest{To: "move/1"})
	require.ErrorIs(t, err, tempool.ErrBusy, "one migration of a session at a time")
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
	require.ErrorIs(t, err, tempool.ErrWorkerCrashed)
	require.ErrorContains(t, err, "all is as it was")
	ran := w.hooked(pool, 0)
	require.Equal(t, []string{"release " + slow, "load " + slow}, ran.Hooks[len(ran.Hooks)-2:])
	require.Equal(t, `"precious"`, must(t, client, "POST", "/v1/pools/move/call/kept_here", `[]`, slow))
	require.Equal(t, "move/0", servedBy(t, client, "move", slow, "precious"), "the binding is where it was")
}
