package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func TestClientsThatWaitForAWorkerAGatewayUsesCostFewEvents(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("held")
	pool, notes := env.startTroublePool("held", 1)
	client := env.gatewayClient("held")
	id := api.WorkerWorkflowID("held", 0)
	call := make(chan int, 1)
	go func() {
		status, _, _ := post(t, client, "/v1/pools/held/call/nap", `[12]`)
		call <- status
	}()
	require.Eventually(t, func() bool { return countNotes(notes, "begin") == 1 }, waitTimeout, 20*time.Millisecond)
	env.waitState(pool, 0, lifecycle.Busy)
	before, _ := env.countEvents(id)
	var waiting sync.WaitGroup
	for i := range 5 {
		waiting.Go(func() {
			temporalOnly := env.client.Pool("held")
			_, err := temporalOnly.Checkout(t.Context(), tempool.CheckoutOptions{Holder: fmt.Sprint("holder ", i), Wait: 10 * time.Second})
			if api.CodeOf(err) != api.CodeQueueTimeout {
				t.Errorf("holder %d: %v", i, err)
			}
		})
	}
	waiting.Wait()
	after, byType := env.countEvents(id)
	t.Logf("5 clients that waited 10 s left %d events", after-before)
	require.LessOrEqual(t, after-before, 60, "%v", byType)
	require.Equal(t, http.StatusOK, <-call)
	lease, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "me", Wait: 10 * time.Second})
	require.NoError(t, err, "the gateway returns the lease when the call has ended")
	require.NoError(t, lease.Checkin(t.Context(), api.OutcomeOK))
}
