package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/sessions/redis/redistest"
	"github.com/tempool/tempool/spec"
)

// isStoreUnavailable reports whether a call failed in its worker with the code of an unavailable store.
func isStoreUnavailable(answer string) bool {
	var problem gateway.Problem
	return json.Unmarshal([]byte(answer), &problem) == nil && problem.Code == api.CodeWorkerError &&
		strings.Contains(problem.WorkerError.Code+problem.WorkerError.Message, string(api.CodeStoreUnavailable))
}

func TestARedisOutageFailsOnlySessionCallsAndRecovers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	env := newEnvWith(t)
	env.startAgent("keeper")
	file := pythonSpec("keeper", 4, "sessions.py")
	file.Sessions.Store, file.Sessions.URL = spec.StoreRedis, server.URL()
	env.startPool(file)
	client := env.gatewayClient("keeper")
	const calls = "/v1/pools/keeper/call/"
	mustRequest(t, client, "PUT", "/v1/sessions/mine", `{"data":{"name":"Ada"}}`, "")
	var stopped atomic.Bool
	var group sync.WaitGroup
	type results struct{ ok, storeFailures atomic.Int64 }
	// repeat calls until they are stopped. Calls in a session may fail because the store is down, and for no other reason.
	repeat := func(method, body, session string) *results {
		r := &results{}
		group.Go(func() {
			for !stopped.Load() {
				status, answer := request(t, client, "POST", calls+method, body, session)
				switch {
				case status == http.StatusOK:
					r.ok.Add(1)
				case session != "" && isStoreUnavailable(answer):
					r.storeFailures.Add(1)
				default:
					t.Errorf("%s: status %d: %s", method, status, answer)
					return
				}
			}
		})
		return r
	}
	writes, reads := repeat("remember", `["k",1]`, "mine"), repeat("recall", `["name"]`, "mine")
	without := repeat("plain", `[]`, "")
	for range 2 {
		awaitMore(t, "served with a session", 5, &writes.ok, &reads.ok)
		server.Kill()
		awaitMore(t, "failed because the store is down", 2, &writes.storeFailures, &reads.storeFailures)
		awaitMore(t, "served without a session", 20, &without.ok)
		status, answer := request(t, client, "GET", "/v1/sessions/mine", "", "")
		require.Equal(t, http.StatusServiceUnavailable, status, answer)
		require.Contains(t, answer, string(api.CodeStoreUnavailable))
		server.Restart()
	}
	awaitMore(t, "served again", 5, &writes.ok, &reads.ok)
	stopped.Store(true)
	group.Wait()
	require.Equal(t, `"Ada"`, mustRequest(t, client, "POST", calls+"recall", `["name"]`, "mine"))
}
