package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// fakeSamples has one sample of each worker that it is asked for, of worker 0 if none is named.
func fakeSamples(pool string, slots []int) []api.RecentSamples {
	if slots == nil {
		slots = []int{0}
	}
	all := []api.RecentSamples{}
	for _, slot := range slots {
		all = append(all, api.RecentSamples{
			Worker: api.WorkerName(pool, slot), AgeMS: []int64{9}, Incarnation: []int64{1}, MemoryBytes: []int64{5},
			CPUPercent: []float32{1.5}, CallsPerMinute: []float32{2}, Score: []float32{90},
		})
	}
	return all
}

func withSamples() option { return withConfig(func(c *Config) { c.Samples = fakeSamples }) }

func TestSamplesOfTheWorkersThatARequestNames(t *testing.T) {
	t.Parallel()
	e := open(t, 0, withSamples())
	workers := func(query string) (names []string) {
		a := e.do("GET", "/v1/pools/p/samples"+query, nil)
		require.Equal(t, http.StatusOK, a.status)
		var all []api.RecentSamples
		require.NoError(t, json.Unmarshal(a.body, &all))
		for _, one := range all {
			require.True(t, one.Valid())
			names = append(names, one.Worker)
		}
		return names
	}
	require.Equal(t, []string{"p/0"}, workers(""))
	require.Equal(t, []string{"p/3", "p/12"}, workers("?workers=3,12"))
	for _, wrong := range []string{"x", "-1", "1,", ",", strings.Repeat("1,", 1000) + "1"} {
		e.do("GET", "/v1/pools/p/samples?workers="+wrong, nil).requireProblem(t, http.StatusBadRequest, api.CodeInvalid)
	}
	e.do("GET", "/v1/pools/P/samples", nil).requireProblem(t, http.StatusNotFound, api.CodePoolNotFound)
}

func TestTheQueueOfAPoolOverTime(t *testing.T) {
	t.Parallel()
	e := open(t, 1)
	queue := func() (recent api.RecentQueue) {
		a := e.do("GET", "/v1/pools/p/queue", nil)
		require.Equal(t, http.StatusOK, a.status)
		require.NoError(t, json.Unmarshal(a.body, &recent))
		require.True(t, recent.Valid())
		return recent
	}
	held := background(func() answer { return e.do("POST", "/v1/pools/p/call/hold", quoted(e.file("a"))) })
	e.awaitHeld(e.file("a.began"))
	var waiting []<-chan answer
	for n := range 2 {
		waiting = append(waiting, background(func() answer { return e.do("POST", "/v1/pools/p/call/echo", `"x"`) }))
		require.Eventually(t, func() bool { return e.queued() == n+1 }, timeout, poll)
	}
	e.release(e.file("a"))
	for _, call := range append(waiting, held) {
		require.Equal(t, http.StatusOK, await(t, call).status)
	}
	require.Zero(t, e.queued())
	recent := queue()
	require.Equal(t, "here", recent.Host)
	require.EqualValues(t, 2, slices.Max(recent.Waiting), "nobody waits any more")
	e.do("GET", "/v1/pools/P/queue", nil).requireProblem(t, http.StatusNotFound, api.CodePoolNotFound)
	unknown := e.do("GET", "/v1/pools/q/queue", nil)
	require.JSONEq(t, `{"host": "here", "age_ms": [], "waiting": []}`, string(unknown.body))
}
