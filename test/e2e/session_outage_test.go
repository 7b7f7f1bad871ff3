package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions/redis/redistest"
	"github.com/tempool/tempool/spec"
)

// caller repeats one call and counts the results.
type caller struct {
	client                   *http.Client
	path, body               string
	session                  string
	succeeded, storeFailures atomic.Int64 // calls that succeeded, and calls that failed because the store is down
	mu                       sync.Mutex
	longest                  time.Duration
	unexpected               string
}

// run calls until stop is closed. A call that hangs fails by the time-out of the client. Calls may fail because the
// store is down if tolerant, and for no other reason.
func (a *caller) run(stop <-chan struct{}, tolerant bool) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		began := time.Now()
		status, answer := a.call()
		took := time.Since(began)
		a.mu.Lock()
		a.longest = max(a.longest, took)
		switch {
		case status == http.StatusOK:
			a.succeeded.Add(1)
		case tolerant && isStoreUnavailable(answer):
			a.storeFailures.Add(1)
		default:
			a.unexpected = fmt.Sprintf("status %d: %s", status, answer)
		}
		failed := a.unexpected != ""
		a.mu.Unlock()
		if failed {
			return
		}
	}
}

func (a *caller) call() (status int, answer string) {
	request, err := http.NewRequest("POST", "http://gateway"+a.path, strings.NewReader(a.body))
	if err != nil {
		return 0, err.Error()
	}
	if a.session != "" {
		request.Header.Set("Tempool-Session", a.session)
	}
	response, err := a.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(content)
}

// isStoreUnavailable reports whether a call failed in its worker with the code of an unavailable store.
func isStoreUnavailable(answer string) bool {
	var problem struct {
		Code        api.Code
		WorkerError struct{ Code, Message string } `json:"worker_error"`
	}
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
	with := []*caller{
		{client: client, path: calls + "remember", body: `["k",1]`, session: "mine"},
		{client: client, path: calls + "recall", body: `["name"]`, session: "mine"},
	}
	without := &caller{client: client, path: calls + "plain", body: `[]`}
	mustRequest(t, client, "PUT", "/v1/sessions/mine", `{"data":{"name":"Ada"}}`, "")
	stop := make(chan struct{})
	var group sync.WaitGroup
	for _, a := range with {
		group.Go(func() { a.run(stop, true) })
	}
	group.Go(func() { without.run(stop, false) })
	// more waits until a count has grown.
	more := func(what string, count *atomic.Int64, by int64) {
		t.Helper()
		before := count.Load()
		require.Eventually(t, func() bool { return count.Load() >= before+by }, waitTimeout, 5*time.Millisecond, what)
	}
	for range 2 {
		for _, a := range with {
			more("served with a session", &a.succeeded, 5)
		}
		server.Kill()
		for _, a := range with {
			more("failed because the store is down", &a.storeFailures, 2)
		}
		more("served without a session", &without.succeeded, 20)
		status, answer := request(t, client, "GET", "/v1/sessions/mine", "", "")
		require.Equal(t, http.StatusServiceUnavailable, status, answer)
		require.Contains(t, answer, string(api.CodeStoreUnavailable))
		server.Restart()
	}
	for _, a := range with {
		more("served again", &a.succeeded, 5)
	}
	close(stop)
	group.Wait()
	for _, a := range append(with, without) {
		require.Empty(t, a.unexpected)
		t.Logf("%s: %d succeeded, %d failed because the store was down, the longest took %s", a.path, a.succeeded.Load(),
			a.storeFailures.Load(), a.longest.Round(time.Millisecond))
	}
	require.Zero(t, without.storeFailures.Load())
	require.Equal(t, `"Ada"`, mustRequest(t, client, "POST", calls+"recall", `["name"]`, "mine"))
}
