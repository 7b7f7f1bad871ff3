package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// valueOf asks for the value of a session, and which incarnation answered.
func valueOf(ctx context.Context, c *http.Client, pool, session string) (value string, incarnation int64, err error) {
	response, body, err := send(ctx, c, http.MethodPost, "/v1/pools/"+pool+"/call/value", "[]", api.HeaderSession, session)
	if err != nil {
		return "", 0, err
	}
	var answer []any
	if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer) != 3 {
		return "", 0, fmt.Errorf("%s: %s", response.Status, body)
	}
	value, _ = answer[0].(string)
	number, _ := answer[2].(float64)
	return value, int64(number), nil
}

// Callers of sessions whose values are in the memory of one process call without a pause while it ends gracefully. None
// of them misses its value: the process releases the sessions before another one answers.
func releasedBeforeAnEnd(env *testEnv) {
	t := env.t
	client := env.gatewayClient("host")
	worker := 0
	withAndWithoutSurge(t, func(t *testing.T, surge bool) {
		s, _ := movingSpec(t, fmt.Sprint("rel-", surge), 1)
		s.Rotation.Surge, s.Rotation.DrainTimeout, s.Queue.Timeout = surge, spec.Duration(waitTimeout), spec.Duration(
			waitTimeout)
		s.Pool.Env["RELEASE_TAKES"] = "0.15"
		pool := env.startPool(s)
		const sessions = 6
		id := func(i int) string { return fmt.Sprint(pool.Name(), "-", i) } // pools of one store share its sessions
		for i := range sessions {
			storeInSession(t, client, pool.Name(), id(i), fmt.Sprint("value ", i))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var group sync.WaitGroup
		var later atomic.Int64 // answers of a later incarnation
		for i := range sessions {
			group.Go(func() {
				for ctx.Err() == nil {
					value, incarnation, err := valueOf(ctx, client, pool.Name(), id(i))
					if ctx.Err() != nil {
						return
					}
					if err != nil || value != fmt.Sprint("value ", i) {
						t.Errorf("session %d: incarnation %d answered %q, %v", i, incarnation, value, err)
						return
					}
					if incarnation > 1 {
						later.Add(1)
					}
				}
			})
		}
		env.restart(pool, api.RestartRequest{Worker: &worker})
		require.Eventually(t, func() bool { return later.Load() > 50 || t.Failed() }, waitTimeout, 10*time.Millisecond,
			"the next process serves")
		cancel()
		group.Wait()
		env.stopPool(pool)
	})
}

// A worker without a call in flight also releases its sessions.
func releasedByAnIdleWorker(env *testEnv) {
	t := env.t
	client := env.gatewayClient("host")
	s, _ := movingSpec(t, "smaller", 2)
	s.Rotation.DrainTimeout = spec.Duration(waitTimeout)
	pool := env.startPool(s)
	home := storeInSession(t, client, "smaller", "first", "of value")
	if storeInSession(t, client, "smaller", "second", "before") == home { // each worker has a session, whichever goes
		env.migrated(pool, "second", map[string]string{"smaller/0": "smaller/1", "smaller/1": "smaller/0"}[home])
	}
	require.NotEqual(t, home, storeInSession(t, client, "smaller", "second", "of value"))
	scales(1)(env, pool)
	env.waitReady(pool, 1)
	for _, session := range []string{"first", "second"} {
		value, _, err := valueOf(t.Context(), client, "smaller", session)
		require.NoError(t, err)
		require.Equal(t, "of value", value, session)
	}
}
