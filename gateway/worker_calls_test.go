package gateway

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func to(slot int, method string) string {
	return "/v1/pools/p/workers/" + strconv.Itoa(slot) + "/call/" + method
}

func TestACallWaitsForItsWorkerAndDelaysNoOther(t *testing.T) {
	e := parallel(t, 2)
	held := e.heldCall("/v1/pools/p/workers/0", "a")
	waiting := make([]<-chan answer, 5)
	for i := range waiting {
		waiting[i] = e.queued(to(0, "turn"), nil, api.HeaderPriority, strconv.Itoa(i))
	}
	for range 20 {
		require.Equal(t, "p/1", e.do("POST", "/v1/pools/p/call/echo", "x").header.Get(api.HeaderWorker))
		e.ok("POST", to(1, "echo"), "x")
	}
	require.Equal(t, 5, e.waiting())
	e.finish("a", held)
	for i := range waiting { // the highest priority first
		got := await(t, waiting[i])
		require.Equal(t, "p/0", got.header.Get(api.HeaderWorker))
		require.Equal(t, strconv.Itoa(len(waiting)-i), string(got.body))
	}
}

func TestACallOfAWorkerTakesItsTurnAmongThoseOfThePool(t *testing.T) {
	e := parallel(t, 1)
	held := e.heldCall("/v1/pools/p/workers/0", "a")
	var waiting []<-chan answer
	for i := range 6 {
		path := to(0, "turn")
		if i%2 == 0 {
			path = "/v1/pools/p/call/turn"
		}
		waiting = append(waiting, e.queued(path, nil))
	}
	e.finish("a", held)
	for i, answered := range waiting {
		require.Equal(t, strconv.Itoa(i+1), string(await(t, answered).body), "in the order of arrival")
	}
}

func TestACallOfAWorkerThatCannotServeItSaysWhy(t *testing.T) {
	e := parallel(t, 2)
	e.do("POST", to(7, "echo"), "x").requireProblem(t, 404, api.CodeWorkerNotFound)
	e.do("POST", "/v1/pools/q/workers/0/call/echo", "x").requireProblem(t, 404, api.CodePoolNotFound)
	for _, slot := range []string{"-1", "one", "99999999999999999999"} {
		require.Equal(t, 400, e.do("POST", "/v1/pools/p/workers/"+slot+"/call/echo", "x").status, slot)
	}
	e.do("POST", to(0, "echo"), "x", api.HeaderPriority, "10").requireProblem(t, 400, api.CodeInvalid)
	e.do("GET", to(0, "echo"), nil).requireProblem(t, 405, codeMethodNotAllowed)
	require.Equal(t, 404, e.do("POST", "/v1/pools/p/workers/0/call", nil).status)
}
