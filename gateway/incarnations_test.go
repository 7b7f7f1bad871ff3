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

// beside starts an incarnation beside the one before, which the book does not know of yet.
func (w *world) beside(slot int, incarnation int64) *process.Process {
	w.t.Helper()
	p, err := w.processes.Start(w.t.Context(), process.Launch{
		Worker: api.WorkerName("p", slot), Incarnation: incarnation, Spec: w.spec, Keep: []int64{incarnation - 1},
	})
	require.NoError(w.t, err)
	return p
}

func TestAHandoverUnderLoadFailsNoCallAndCountsEachOnce(t *testing.T) {
	w := open(t, 2)
	made, enough := w.callers(4)
	var counted int64
	for incarnation := int64(2); incarnation <= 6; incarnation++ {
		for slot := range 2 {
			worker := api.WorkerName("p", slot)
			w.beside(slot, incarnation)
			w.book.add(worker, incarnation) // the workflow has moved on, and tells the gateway next
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			result := w.gateway.Drain(ctx, worker, incarnation-1)
			cancel()
			require.True(t, result.Drained)
			if result.Checkin != nil {
				counted += result.Checkin.Usage.Requests
			}
			old, _ := w.processes.Get(worker, incarnation-1)
			_, err := old.Stop(t.Context(), time.Second)
			require.NoError(t, err)
		}
	}
	enough()
	require.Positive(t, made.Load())
	require.Positive(t, counted)
	require.LessOrEqual(t, counted, made.Load())
}

func TestTheOldIncarnationServesUntilItIsDrained(t *testing.T) {
	w := open(t, 1, idleReturn(time.Hour)) // what one lease counts is looked at
	first, err := w.gateway.CallPool(t.Context(), "p", dispatch.Request{Method: "pid", Body: []byte("{}")})
	require.NoError(t, err)
	w.beside(0, 2)
	second, err := w.gateway.CallPool(t.Context(), "p", dispatch.Request{Method: "pid", Body: []byte("{}")})
	require.NoError(t, err)
	require.Equal(t, first.Body, second.Body)
	require.EqualValues(t, 1, second.Incarnation)
	w.book.add("p/0", 2)
	result := w.gateway.Drain(t.Context(), "p/0", 1)
	require.EqualValues(t, 2, result.Checkin.Usage.Requests)
	third, err := w.gateway.CallPool(t.Context(), "p", dispatch.Request{Method: "pid", Body: []byte("{}")})
	require.NoError(t, err)
	require.EqualValues(t, 2, third.Incarnation)
	usage, _ := w.gateway.Usage("p/0", 1)
	require.EqualValues(t, 2, usage.Requests, "each incarnation has its own count")
}

func TestADrainOfTheOldIncarnationWaitsForItsCallsBesideTheNewOne(t *testing.T) {
	w := open(t, 1)
	held := w.file("held")
	long := background(func() error {
		_, err := w.gateway.CallPool(context.Background(), "p", dispatch.Request{Method: "hold", Body: []byte(`{"path":` + quoted(held) + `}`)})
		return err
	})
	w.awaitFile(held + ".began")
	w.beside(0, 2)
	w.book.add("p/0", 2)
	drained := background(func() api.DrainResult {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return w.gateway.Drain(ctx, "p/0", 1)
	})
	response, err := w.gateway.CallPool(t.Context(), "p", dispatch.Request{Method: "echo", Body: []byte("x")})
	require.NoError(t, err)
	require.EqualValues(t, 2, response.Incarnation)
	w.touch(held)
	require.NoError(t, await(t, long))
	result := await(t, drained)
	require.True(t, result.Drained)
	require.EqualValues(t, 1, result.Checkin.Usage.Requests)
}

func TestADrainThatIsOverSaysHowManyCallsItCut(t *testing.T) {
	w := open(t, 1)
	held := w.file("held")
	long := background(func() error {
		_, err := w.gateway.CallPool(context.Background(), "p", dispatch.Request{Method: "hold", Body: []byte(`{"path":` + quoted(held) + `}`)})
		return err
	})
	w.awaitFile(held + ".began")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	result := w.gateway.Drain(ctx, "p/0", 1)
	require.False(t, result.Drained)
	require.Equal(t, 1, result.Cut)
	require.NotNil(t, result.Checkin, "what was served until then is told")
	w.touch(held)
	require.NoError(t, await(t, long))
}

func TestALeaseOnTheOldIncarnationEndsWhenOneOnTheNewerIsSeen(t *testing.T) {
	w := open(t, 1)
	old := w.lease(0, "me")
	w.do("POST", "/v1/leases/"+old.ID+"/call/echo", "1")
	w.beside(0, 2)
	require.Equal(t, 200, w.do("POST", "/v1/leases/"+old.ID+"/call/echo", "1").status, "the workflow has not moved on")
	w.book.add("p/0", 2)
	fresh := w.lease(0, "you")
	require.Equal(t, 200, w.do("POST", "/v1/leases/"+fresh.ID+"/call/echo", "2").status)
	w.do("POST", "/v1/leases/"+old.ID+"/call/echo", "3").refusedWith(t, 409, api.CodeLeaseFenced)
}

func TestALowScoreGetsNoCallsWhileBetterWorkersAreFree(t *testing.T) {
	scores := func(worker string, _ int64) float64 {
		if worker == "p/0" {
			return 10
		}
		return 90
	}
	w := open(t, 2, withConfig(func(c *Config) { c.Score = scores }))
	// Both are leased while two calls wait for each other.
	held := w.file("held")
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			_, err := w.gateway.CallPool(context.Background(), "p", dispatch.Request{Method: "hold", Body: []byte(`{"path":` + quoted(held) + `}`)})
			if err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool {
		_, first := w.gateway.Usage("p/0", 1)
		_, second := w.gateway.Usage("p/1", 1)
		return first+second == 2
	}, patience, tick)
	w.touch(held)
	both.Wait()
	for range 20 {
		response, err := w.gateway.CallPool(t.Context(), "p", dispatch.Request{Method: "echo", Body: []byte("x")})
		require.NoError(t, err)
		require.Equal(t, "p/1", response.Worker)
	}
}
