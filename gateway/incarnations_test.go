package gateway

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/dispatch"
	"github.com/tempool/tempool/process"
)

// beside starts an incarnation beside the previous one; the control plane does not know it yet.
func (e *env) beside(slot int, incarnation int64) *process.Process {
	e.t.Helper()
	p, err := e.processes.Start(e.t.Context(), process.Launch{
		Worker: api.WorkerName("p", slot), Incarnation: incarnation, Spec: e.spec, Keep: []int64{incarnation - 1},
	})
	require.NoError(e.t, err)
	return p
}

func TestSwitchUnderLoadFailsNoCallAndCountsEachOnce(t *testing.T) {
	t.Parallel()
	e := open(t, 2)
	made, enough := e.callers(4)
	var counted int64
	for incarnation := int64(2); incarnation <= 6; incarnation++ {
		for slot := range 2 {
			worker := api.WorkerName("p", slot)
			e.beside(slot, incarnation)
			e.control.add(worker, incarnation) // the workflow has switched and drains the older one next
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			result := e.gateway.Drain(ctx, worker, incarnation-1)
			cancel()
			require.True(t, result.Drained)
			if result.Checkin != nil {
				counted += result.Checkin.Usage.Requests
			}
			old, _ := e.processes.Get(worker, incarnation-1)
			_, err := old.Stop(t.Context(), time.Second)
			require.NoError(t, err)
		}
	}
	enough()
	require.Positive(t, made.Load())
	require.Positive(t, counted)
	require.LessOrEqual(t, counted, made.Load())
}

func TestOlderIncarnationServesUntilDrained(t *testing.T) {
	t.Parallel()
	e := open(t, 1, idleReturn(time.Hour)) // the test reads what one lease counts
	first, err := e.gateway.CallPool(t.Context(), "p", dispatch.Request{Method: "pid", Body: []byte("{}")})
	require.NoError(t, err)
	e.beside(0, 2)
	second, err := e.gateway.CallPool(t.Context(), "p", dispatch.Request{Method: "pid", Body: []byte("{}")})
	require.NoError(t, err)
	require.Equal(t, first.Body, second.Body)
	require.EqualValues(t, 1, second.Incarnation)
	e.control.add("p/0", 2)
	result := e.gateway.Drain(t.Context(), "p/0", 1)
	require.EqualValues(t, 2, result.Checkin.Usage.Requests)
	third, err := e.gateway.CallPool(t.Context(), "p", dispatch.Request{Method: "pid", Body: []byte("{}")})
	require.NoError(t, err)
	require.EqualValues(t, 2, third.Incarnation)
	usage, _ := e.gateway.Usage("p/0", 1)
	require.EqualValues(t, 2, usage.Requests, "each incarnation has its own count")
}

// startHolding starts a call of the pool that lasts until the file is released, and returns once it is in flight.
func (e *env) startHolding(file string) <-chan error {
	e.t.Helper()
	held := background(func() error {
		_, err := e.gateway.CallPool(context.Background(), "p",
			dispatch.Request{Method: "hold", Body: []byte(`{"path":` + quoted(file) + `}`)})
		return err
	})
	e.awaitHeld(file + ".began")
	return held
}

func TestDrainOfOlderIncarnationWaitsForItsCalls(t *testing.T) {
	t.Parallel()
	e := open(t, 1)
	held := e.file("held")
	long := e.startHolding(held)
	e.beside(0, 2)
	e.control.add("p/0", 2)
	drained := background(func() api.DrainResult {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		return e.gateway.Drain(ctx, "p/0", 1)
	})
	response, err := e.gateway.CallPool(t.Context(), "p", dispatch.Request{Method: "echo", Body: []byte("x")})
	require.NoError(t, err)
	require.EqualValues(t, 2, response.Incarnation)
	e.release(held)
	require.NoError(t, await(t, long))
	result := await(t, drained)
	require.True(t, result.Drained)
	require.EqualValues(t, 1, result.Checkin.Usage.Requests)
}

func TestDrainReportsCutCalls(t *testing.T) {
	t.Parallel()
	e := open(t, 1)
	held := e.file("held")
	long := e.startHolding(held)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	result := e.gateway.Drain(ctx, "p/0", 1)
	require.False(t, result.Drained)
	require.Equal(t, 1, result.CallsCut)
	require.NotNil(t, result.Checkin, "the usage so far is reported")
	e.release(held)
	require.NoError(t, await(t, long))
}

func TestLeaseOnOlderIncarnationEndsWithOneOnTheNewer(t *testing.T) {
	t.Parallel()
	e := open(t, 1)
	old := e.lease(0, "me")
	e.do("POST", "/v1/leases/"+old.ID+"/call/echo", "1")
	e.beside(0, 2)
	require.Equal(t, 200, e.do("POST", "/v1/leases/"+old.ID+"/call/echo", "1").status, "the workflow has not switched")
	e.control.add("p/0", 2)
	fresh := e.lease(0, "you")
	require.Equal(t, 200, e.do("POST", "/v1/leases/"+fresh.ID+"/call/echo", "2").status)
	e.do("POST", "/v1/leases/"+old.ID+"/call/echo", "3").requireProblem(t, 409, api.CodeLeaseFenced)
}

func TestLowScoreGetsNoCallsWhileBetterWorkersAreFree(t *testing.T) {
	t.Parallel()
	scores := func(worker string, _ int64) float64 {
		if worker == "p/0" {
			return 10
		}
		return 90
	}
	e := open(t, 2, idleReturn(time.Hour), withConfig(func(c *Config) { c.Score = scores }))
	// Both are leased while two calls wait for each other.
	held := e.file("held")
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			_, err := e.gateway.CallPool(context.Background(), "p",
				dispatch.Request{Method: "hold", Body: []byte(`{"path":` + quoted(held) + `}`)})
			if err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool {
		_, first := e.gateway.Usage("p/0", 1)
		_, second := e.gateway.Usage("p/1", 1)
		return first+second == 2
	}, timeout, poll)
	e.release(held)
	both.Wait()
	for range 20 {
		response, err := e.gateway.CallPool(t.Context(), "p", dispatch.Request{Method: "echo", Body: []byte("x")})
		require.NoError(t, err)
		require.Equal(t, "p/1", response.Worker)
	}
}
