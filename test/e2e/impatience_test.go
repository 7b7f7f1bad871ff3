package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// Callers that leave long calls, whose handlers ignore that, cost processes. They take no worker out of service.
func callersThatLeave(env *testEnv) {
	t := env.t
	s := pythonSpec("impatience", 3, "trouble.py")
	notes := env.dir + "/impatience.notes"
	s.Pool.Env["NOTES"] = notes
	s.Call.CancelGrace = spec.Duration(100 * time.Millisecond)
	s.Recovery.MaxConsecutiveFailures = 1 // a single counted failure would take a worker out of service
	pool := env.startPool(s)
	client := env.gatewayClient("host")
	const callers, times = 3, 5
	var calling sync.WaitGroup
	for caller := range callers {
		calling.Go(func() {
			for n := range times {
				ctx, leave := context.WithCancel(t.Context())
				name := fmt.Sprintf("call-%d-%d", caller, n)
				calling.Go(func() { // leaves once the call has begun
					defer leave()
					assert.Eventually(t, func() bool { return countNotes(notes, "begin "+name+" ") > 0 }, waitTimeout,
						10*time.Millisecond, name)
				})
				_, _, err := send(ctx, client, http.MethodPost, "/v1/pools/impatience/call/doze", `[3600, "`+name+`"]`)
				assert.ErrorIs(t, err, context.Canceled)
				leave()
			}
		})
	}
	calling.Wait()
	env.waitFor(pool, "each call is cut with its process: its handler ignores that its caller has left",
		func(v api.PoolWorkers) bool {
			cut := int64(0)
			for _, worker := range v.Workers {
				require.Zero(t, worker.ConsecutiveFailures, "%+v", worker)
				require.Zero(t, worker.RestartsByReason[string(api.CauseExit)])
				cut += worker.CallsCut
			}
			return v.Ready == 3 && cut == callers*times
		})
	for _, worker := range env.waitReady(pool, 3).Workers {
		cut := worker.RestartsByReason[string(api.CauseCutCall)]
		// a start that a busy Temporal lost takes a number, and no process
		lost := worker.RestartsByReason[string(api.CauseHostLost)]
		require.Equal(t, worker.CallsCut, cut, "%+v", worker)
		require.Equal(t, cut+lost, total(worker.RestartsByReason), "%+v", worker)
		require.Equal(t, cut, total(worker.EndedByOutcome), "%+v", worker)
	}
	mustRequest(t, client, "POST", "/v1/pools/impatience/call/add", `[1, 2]`, "")
}

func total(counts map[string]int64) (n int64) {
	for _, count := range counts {
		n += count
	}
	return n
}
