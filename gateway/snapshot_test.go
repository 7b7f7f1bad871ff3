package gateway

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/spec"
)

func TestSnapshotAndFiguresCountCalls(t *testing.T) {
	e := parallel(t, 1, withSpec(func(sp *spec.Spec) { sp.Queue.Size = 1 }))
	held := e.heldCall("/v1/pools/p", "a")
	waits := e.queued("/v1/pools/p/call/echo", "1")
	e.do("POST", "/v1/pools/p/call/echo", "1").requireProblem(t, 429, api.CodeQueueFull)

	busy := e.gateway.Snapshot()
	require.Equal(t, map[string]int{"p": 1}, e.gateway.Waiting())
	require.True(t, busy.ControlPlane)
	require.False(t, busy.Fenced)
	require.Positive(t, busy.Connections["unix"])
	require.Equal(t, 1, busy.Pools[0].Waiting)
	require.EqualValues(t, 1, busy.Pools[0].Refused[api.CodeQueueFull])
	require.Equal(t, []pool.WorkerSnapshot{{Worker: "p/0", Incarnation: 1, InFlight: 1}}, busy.Pools[0].Workers)

	e.finish("a", held)
	require.Equal(t, 200, await(t, waits).status)
	e.do("POST", "/v1/pools/p/call/fail", "").requireProblem(t, 500, api.CodeWorkerError)

	p := e.gateway.Snapshot().Pools[0]
	require.Equal(t, "p", p.Pool)
	calls, queued := histogramOf(t, p.Calls), histogramOf(t, p.Waits)
	require.EqualValues(t, 3, calls.GetSampleCount())
	require.Positive(t, calls.GetSampleSum())
	require.GreaterOrEqual(t, queued.GetSampleCount(), uint64(1))
	require.Zero(t, p.Waiting)
	require.Empty(t, e.gateway.Waiting())
	require.EqualValues(t, 3, p.Workers[0].Requests)
	require.EqualValues(t, 1, p.Workers[0].Failed)
	require.InDelta(t, calls.GetSampleSum(), p.Workers[0].CallTime.Seconds(), 1e-6)
	require.Zero(t, p.Workers[0].InFlight)

	recent := decode[api.RecentQueue](t, e.do("GET", "/v1/pools/p/queue", nil).body)
	require.True(t, recent.Valid())
	require.Equal(t, "here", recent.Host)
	require.Len(t, recent.Methods, 3)
	failing := slices.IndexFunc(recent.Methods, func(m api.MethodFigures) bool { return m.Method == "fail" })
	require.NotEqual(t, -1, failing)
	require.EqualValues(t, 1, recent.Methods[failing].Errors)
	last := e.gateway.LastMinute(1)["p"]
	require.EqualValues(t, 4, last.Calls, "a refused one, too")
	require.EqualValues(t, 1, last.Queue)
	require.Positive(t, last.Waiting.Quantile(0.9), "one of four calls waited")
	require.Empty(t, e.gateway.LastMinute(0))
	e.do("GET", "/v1/pools/P/queue", nil).requireProblem(t, 404, api.CodePoolNotFound)
	unknown := e.do("GET", "/v1/pools/q/queue", nil)
	require.JSONEq(t, `{"host": "here", "minutes": [], "methods": []}`, string(unknown.body))
}

func histogramOf(t *testing.T, m prometheus.Metric) *dto.Histogram {
	t.Helper()
	var out dto.Metric
	require.NoError(t, m.Write(&out))
	return out.Histogram
}

// A pool whose workers never came up has refused calls, and nothing else.
func TestSnapshotCountsTheRefusalsOfAPoolWithoutWorkers(t *testing.T) {
	e := parallel(t, 0)
	e.control.add("p/0", 1).host = "elsewhere"
	for _, unknown := range []string{"nope", "NOPE"} {
		e.do("POST", "/v1/pools/"+unknown+"/call/echo", "1").requireProblem(t, 404, api.CodePoolNotFound)
	}
	require.Empty(t, e.gateway.Snapshot().Pools)
	for n := range 3 {
		e.do("POST", "/v1/pools/p/call/echo", "1").requireProblem(t, 503, api.CodeNoWorkers)
		pools := e.gateway.Snapshot().Pools
		require.Len(t, pools, 1)
		require.EqualValues(t, n+1, pools[0].Refused[api.CodeNoWorkers])
	}
}
