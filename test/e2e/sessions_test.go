package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/cli"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/redis/redistest"
	"github.com/tempool/tempool/spec"
)

// request sends a request, in a session unless it is empty, and returns the answer.
func request(t *testing.T, c *http.Client, method, path, body, session string) (status int, answer string) {
	t.Helper()
	response, answer, err := send(t.Context(), c, method, path, body, "Tempool-Session", session)
	require.NoError(t, err)
	return response.StatusCode, answer
}

func mustRequest(t *testing.T, c *http.Client, method, path, body, session string) string {
	t.Helper()
	status, answer := request(t, c, method, path, body, session)
	require.Less(t, status, 300, "%s", answer)
	return answer
}

// decode is a JSON answer.
func decode[T any](t *testing.T, answer string) (value T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(answer), &value), answer)
	return value
}

func TestASessionSurvivesWorkerAndAgentCrashes(t *testing.T) {
	env := newEnv(t)
	a := env.startAgent("memory")
	s := pythonSpec("mind", 2, "sessions.py")
	pool := env.startPool(s)
	client := env.gatewayClient("memory")
	call := func(method, arguments, session string) string {
		t.Helper()
		return mustRequest(t, client, "POST", "/v1/pools/mind/call/"+method, arguments, session)
	}

	require.Equal(t, `"mine"`, call("remember", `["name","Ada"]`, "mine"))
	mustRequest(t, client, "PATCH", "/v1/sessions/mine", `{"data":{"age":36}}`, "")
	require.Equal(t, `36`, call("recall", `["age"]`, "mine"))
	shown, _ := env.ctl(cli.ExitOK, "sessions", "get", "mind", "mine")
	require.Contains(t, shown, `"Ada"`)
	listed, _ := env.ctl(cli.ExitOK, "sessions", "list", "mind")
	require.Contains(t, listed, "mine")
	_, none := env.ctl(cli.ExitFailed, "sessions", "rm", "mind", "nobodys")
	require.Contains(t, none, "session nobodys not found")
	require.Equal(t, `null`, call("recall", `["age"]`, "another"), "a call reaches its own session only")

	// Another worker takes over what one worker learned, immediately after the first one dies.
	call("learn", `["add",[1,2,3]]`, "mine")
	type done struct{ Result, PID int }
	var second done
	first := decode[done](t, call("perform", `["add",10]`, "mine"))
	require.Equal(t, 16, first.Result)
	require.Equal(t, done{26, first.PID}, decode[done](t, call("perform", `["add",20]`, "mine")),
		"a session prefers its worker")
	require.NoError(t, syscall.Kill(first.PID, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		status, answer := request(t, client, "POST", "/v1/pools/mind/call/perform", `["add",30]`, "mine")
		return status == http.StatusOK && json.Unmarshal([]byte(answer), &second) == nil
	}, waitTimeout, 20*time.Millisecond)
	require.Equal(t, 36, second.Result)
	require.NotEqual(t, first.PID, second.PID)

	// A call without a session gets a temporary one.
	temporary := decode[string](t, call("remember", `["k",1]`, ""))
	require.True(t, sessions.IsTemporary(temporary))
	require.Eventually(t, func() bool {
		status, _ := request(t, client, "GET", "/v1/sessions/"+temporary, "", "")
		return status == http.StatusNotFound
	}, waitTimeout, 10*time.Millisecond)

	// A backup restores what was deleted since, with its version, and undoes no later change.
	backup := filepath.Join(t.TempDir(), "backup")
	mustRequest(t, client, "PUT", "/v1/sessions/lost", `{"data":{"k":1}}`, "")
	mustRequest(t, client, "PATCH", "/v1/sessions/lost", `{"data":{"k":2}}`, "")
	env.ctl(cli.ExitOK, "sessions", "export", "mind", backup)
	mustRequest(t, client, "DELETE", "/v1/sessions/lost", "", "")
	require.Equal(t, `"mine"`, call("remember", `["name","Ada Lovelace"]`, "mine"))
	env.ctl(cli.ExitOK, "sessions", "import", "mind", backup)
	lost := decode[sessions.Session](t, mustRequest(t, client, "GET", "/v1/sessions/lost", "", ""))
	require.Equal(t, int64(2), lost.Version)
	require.Equal(t, `2`, call("recall", `["k"]`, "lost"))
	require.Equal(t, `"Ada Lovelace"`, call("recall", `["name"]`, "mine"))
	require.Equal(t, `"mine"`, call("remember", `["name","Ada"]`, "mine"))

	// Every acknowledged write survives a kill of the agent.
	for i := range 50 {
		call("remember", fmt.Sprintf(`["k%d",%d]`, i, i), "mine")
	}
	before := env.waitReady(pool, 2).Workers
	a.kill()
	env.startAgent("memory")
	env.waitNext(pool, before)
	client = waitForGateway(t, env.gatewayClient("memory"))
	kept := decode[sessions.Session](t, mustRequest(t, client, "GET", "/v1/sessions/mine?pool=mind", "", ""))
	require.Len(t, kept.Data, 52)
	require.Equal(t, `"Ada"`, string(kept.Data["name"]))
	require.Equal(t, `49`, call("recall", `["k49"]`, "mine"))
}

// A second host gets no worker of a pool whose sessions are in a file of the first, and of two hosts with workers the
// first to store a session has all.
func TestTheFirstHostToStoreASessionOwnsAllSessionsOfThePool(t *testing.T) {
	env := oneHost(t, "first", "--capacity", "1")
	pool := env.startPool(pythonSpec("wide", 1, "sessions.py"))
	first := env.gatewayClient("first")
	mustRequest(t, first, "PUT", "/v1/sessions/mine", `{"data":{"k":1}}`, "")

	env.startAgent("second", "--capacity", "1")
	scales(2)(env, pool)
	const why = `the sessions of pool wide are in the local store of host first, which host second cannot reach; ` +
		`to use several hosts, set sessions.store = "redis" and sessions.url`
	require.Eventually(t, func() bool {
		view := ctlJSON[api.PoolWorkers](env, "pool", "status", "wide")
		return len(view.Workers) == 2 && strings.Contains(view.Workers[1].Reason, why)
	}, waitTimeout, 100*time.Millisecond)
	require.Eventually(t, func() bool { // between two attempts the worker is starting, which is not a reason
		table, _ := env.ctl(cli.ExitOK, "pool", "status", "wide")
		return strings.Contains(table, "the sessions of pool wide are in the local store of host first")
	}, waitTimeout, 100*time.Millisecond)
	mustRequest(t, first, "GET", "/v1/sessions/mine", "", "")
	require.Equal(t, `1`, mustRequest(t, first, "POST", "/v1/pools/wide/call/recall", `["k"]`, "mine"))
	env.stopPool(pool)

	env.startPool(pythonSpec("both", 2, "sessions.py"))
	mustRequest(t, env.gatewayClient("second"), "PUT", "/v1/sessions/mine?pool=both", `{"data":{"k":1}}`, "")
	status, answer := request(t, first, "GET", "/v1/sessions/mine?pool=both", "", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, answer, "the sessions of pool both are in the local store of host second")
	require.Contains(t, answer, `set sessions.store = \"redis\"`)
	status, answer = request(t, first, "POST", "/v1/pools/both/call/plain", `[]`, "")
	require.Equal(t, http.StatusOK, status, "calls without a session are served on every host: %s", answer)
	mustRequest(t, env.gatewayClient("second"), "GET", "/v1/sessions/mine?pool=both", "", "")
}

func TestHostsShareSessionsInRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	env := newEnvWith(t)
	env.startAgent("here", "--capacity", "1")
	env.startAgent("there", "--capacity", "1")
	file := pythonSpec("shared", 2, "sessions.py")
	file.Sessions.Store, file.Sessions.URL = spec.StoreRedis, server.URL()
	pool := env.startPool(file)
	here, there := env.gatewayClient("here"), env.gatewayClient("there")
	const call = "/v1/pools/shared/call/"
	mustRequest(t, here, "POST", call+"remember", `["name","Ada"]`, "mine")
	require.Equal(t, `"Ada"`, mustRequest(t, there, "POST", call+"recall", `["name"]`, "mine"))
	mustRequest(t, there, "PATCH", "/v1/sessions/mine", `{"data":{"name":"Eve"}}`, "")
	require.Contains(t, mustRequest(t, here, "GET", "/v1/sessions/mine", "", ""), `"name":"Eve"`)
	env.stopPool(pool)

	// Half of the sessions of one host move to the other.
	s, _ := movingSpec(t, "even", 2)
	s.Sessions.Store, s.Sessions.URL = spec.StoreRedis, server.URL()
	env.startPool(s)
	for i := range 10 {
		storeInSession(t, here, "even", fmt.Sprint("s", i), "value")
	}
	moves := ctlJSON[api.SessionMoves](env, "sessions", "rebalance", "even")
	require.Equal(t, 5, moves.Moved)
	require.Len(t, moves.Flows, 1)
	kept := map[*http.Client]int{}
	for i := range 10 {
		for _, host := range []*http.Client{here, there} {
			if mustRequest(t, host, "POST", "/v1/pools/even/call/kept_here", `[]`, fmt.Sprint("s", i)) == `"value"` {
				kept[host]++
			}
		}
	}
	require.Equal(t, map[*http.Client]int{here: 5, there: 5}, kept)
}
