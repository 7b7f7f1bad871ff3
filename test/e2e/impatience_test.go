package e2e

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// Callers that leave long calls, whose handlers ignore that, cost processes. They take no worker out of service.
func TestCallersThatLeaveLongCallsLeaveThePoolInService(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("impatience")
	s := pythonSpec("impatience", 3, "trouble.py")
	s.Pool.Env["NOTES"] = env.dir + "/impatience.notes"
	s.Call.CancelGrace = spec.Duration(100 * time.Millisecond)
	s.Recovery.MaxConsecutiveFailures = 1 // a single counted failure would take a worker out of service
	pool := env.startPool(s)
	client := env.gatewayClient("impatience")
	const times = 20
	var callers sync.WaitGroup
	for range 3 {
		callers.Go(func() {
			for range times {
				ctx, leave := context.WithTimeout(t.Context(), 300*time.Millisecond)
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway/v1/pools/impatience/call/doze", strings.NewReader(`[60]`))
				if err == nil {
					_, err = client.Do(request)
				}
				leave()
				if err == nil {
					t.Error("a call of a minute ended in less than a second")
				}
			}
		})
	}
	callers.Wait()
	view := env.waitReady(pool, 3)
	cut := int64(0)
	for _, worker := range view.Workers {
		require.Zero(t, worker.ConsecutiveFailures, "%+v", worker)
		require.Zero(t, worker.RestartsByReason[string(api.CauseExit)])
		require.Equal(t, worker.Restarts, worker.CallsCut)
		cut += worker.CallsCut
	}
	require.Positive(t, cut, "the handler ignores that its caller has left")
	t.Logf("%d calls were cut with their processes", cut)
	status, answer, _ := post(t, client, "/v1/pools/impatience/call/add", `[1, 2]`)
	require.Equal(t, http.StatusOK, status, answer)
}
