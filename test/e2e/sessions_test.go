package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/cli"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/redis/redistest"
	"github.com/tempool/tempool/spec"
)

// visit is one request, perhaps in a session, and its answer.
func visit(t *testing.T, c *http.Client, method, path, body, session string) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://gateway"+path, strings.NewReader(body))
	require.NoError(t, err)
	if session != "" {
		request.Header.Set("Tempool-Session", session)
	}
	response, err := c.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(content)
}

func must(t *testing.T, c *http.Client, method, path, body, session string) string {
	t.Helper()
	status, answer := visit(t, c, method, path, body, session)
	require.Less(t, status, 300, "%s", answer)
	return answer
}

func TestASessionOutlivesWorkersAndItsAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent("memory")
	pool := w.start(python("mind", 2, "sessions.py"))
	client := w.over("memory")
	call := func(method, arguments, session string) string {
		t.Helper()
		return must(t, client, "POST", "/v1/pools/mind/call/"+method, arguments, session)
	}

	require.Equal(t, `"mine"`, call("remember", `["name","Ada"]`, "mine"))
	must(t, client, "PATCH", "/v1/sessions/mine", `{"data":{"age":36}}`, "")
	require.Equal(t, `36`, call("recall", `["age"]`, "mine"))
	w.ctl(cli.ExitOK, "sessions", "set", "mind", "mine", "age=37")
	require.Equal(t, `37`, call("recall", `["age"]`, "mine"))
	shown, _ := w.ctl(cli.ExitOK, "sessions", "get", "mind", "mine")
	require.Contains(t, shown, `"Ada"`)
	listed, _ := w.ctl(cli.ExitOK, "sessions", "list", "mind")
	require.Contains(t, listed, "mine")
	_, none := w.ctl(cli.ExitFailed, "sessions", "rm", "mind", "nobodys")
	require.Contains(t, none, "session nobodys not found")
	require.Equal(t, `null`, call("recall", `["age"]`, "another"), "a call reaches its own session only")

	// What one worker was taught, another does, at once when the first one dies.
	call("learn", `["add",[1,2,3]]`, "mine")
	type done struct{ Result, PID int }
	var first, second done
	require.NoError(t, json.Unmarshal([]byte(call("perform", `["add",10]`, "mine")), &first))
	require.Equal(t, 16, first.Result)
	var again done
	require.NoError(t, json.Unmarshal([]byte(call("perform", `["add",20]`, "mine")), &again))
	require.Equal(t, done{26, first.PID}, again, "a session prefers its worker")
	require.NoError(t, syscall.Kill(first.PID, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		status, answer := visit(t, client, "POST", "/v1/pools/mind/call/perform", `["add",30]`, "mine")
		return status == http.StatusOK && json.Unmarshal([]byte(answer), &second) == nil
	}, patience, 20*time.Millisecond)
	require.Equal(t, 36, second.Result)
	require.NotEqual(t, first.PID, second.PID)

	// A call without a session has one as long as it lasts.
	var temporary string
	require.NoError(t, json.Unmarshal([]byte(call("remember", `["k",1]`, "")), &temporary))
	require.True(t, sessions.IsTemporary(temporary))
	require.Eventually(t, func() bool {
		status, _ := visit(t, client, "GET", "/v1/sessions/"+temporary, "", "")
		return status == http.StatusNotFound
	}, patience, 10*time.Millisecond)

	// Every acknowledged write is there after the agent was killed.
	for i := range 50 {
		call("remember", fmt.Sprintf(`["k%d",%d]`, i, i), "mine")
	}
	a.kill()
	w.agent("memory")
	w.ready(pool, 2)
	client = w.over("memory")
	var s sessions.Session
	require.NoError(t, json.Unmarshal([]byte(must(t, client, "GET", "/v1/sessions/mine", "", "")), &s))
	require.Len(t, s.Data, 52)
	require.Equal(t, `"Ada"`, string(s.Data["name"]))
	require.Equal(t, `49`, call("recall", `["k49"]`, "mine"))
}

func TestASecondHostTakesNoWorkerOfAPoolWhoseSessionsAreInAFileOfTheFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("first", "--capacity", "1")
	pool := w.start(python("wide", 1, "sessions.py"))
	first := w.over("first")
	must(t, first, "PUT", "/v1/sessions/mine", `{"data":{"k":1}}`, "")

	w.agent("second", "--capacity", "1")
	_, err := pool.Scale(t.Context(), 2)
	require.NoError(t, err)
	const why = `host first keeps the sessions of pool wide in a store of its own, which host second cannot reach: for several hosts set sessions.store = "redis" and sessions.url`
	require.Eventually(t, func() bool {
		out, _ := w.ctl(cli.ExitOK, "ps", "wide", "-o", "json")
		var views []api.PoolWorkers
		var view api.PoolWorkers
		if json.Unmarshal([]byte(out), &view) != nil && json.Unmarshal([]byte(out), &views) == nil && len(views) == 1 {
			view = views[0]
		}
		return len(view.Workers) == 2 && strings.Contains(view.Workers[1].Reason, why)
	}, patience, 100*time.Millisecond)
	table, _ := w.ctl(cli.ExitOK, "pool", "status", "wide")
	require.Contains(t, table, "host first keeps the sessions")
	must(t, first, "GET", "/v1/sessions/mine", "", "")
	require.Equal(t, `1`, must(t, first, "POST", "/v1/pools/wide/call/recall", `["k"]`, "mine"))
}

func TestOfTwoHostsThatHaveAPoolTheFirstToKeepASessionKeepsThemAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("left", "--capacity", "1")
	w.agent("right", "--capacity", "1")
	w.start(python("both", 2, "sessions.py"))
	must(t, w.over("right"), "PUT", "/v1/sessions/mine?pool=both", `{"data":{"k":1}}`, "")
	status, answer := visit(t, w.over("left"), "GET", "/v1/sessions/mine?pool=both", "", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, answer, "host right keeps the sessions of pool both")
	require.Contains(t, answer, `set sessions.store = \"redis\"`)
	status, answer = visit(t, w.over("left"), "POST", "/v1/pools/both/call/plain", `[]`, "")
	require.Equal(t, http.StatusOK, status, "who needs no session is served everywhere: %s", answer)
	must(t, w.over("right"), "GET", "/v1/sessions/mine?pool=both", "", "")
}

func TestHostsShareSessionsInRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := newWorld(t)
	w.agent("here", "--capacity", "1")
	w.agent("there", "--capacity", "1")
	file := python("shared", 2, "sessions.py")
	file.Sessions.Store, file.Sessions.URL = spec.StoreRedis, server.URL()
	w.start(file)
	here, there := w.over("here"), w.over("there")
	const call = "/v1/pools/shared/call/"
	must(t, here, "POST", call+"remember", `["name","Ada"]`, "mine")
	require.Equal(t, `"Ada"`, must(t, there, "POST", call+"recall", `["name"]`, "mine"))
	must(t, there, "PATCH", "/v1/sessions/mine", `{"data":{"name":"Eve"}}`, "")
	require.Contains(t, must(t, here, "GET", "/v1/sessions/mine", "", ""), `"name":"Eve"`)
}
