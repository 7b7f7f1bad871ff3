package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/cli"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/sessions/redis"
	"github.com/tempool/tempool/sessions/redis/redistest"
	"github.com/tempool/tempool/spec"
)

// sessionCounter counts up in its own session over HTTP, across restarts of the agent, and keeps the last acknowledged
// number.
type sessionCounter struct {
	client       *http.Client
	id           string
	acknowledged atomic.Int64
	notFound     atomic.Bool // the gateway returned 404 after it had acknowledged a number
}

// count increments the number until ctx ends. It repeats a failed update with the same number, since the update may
// have happened.
func (c *sessionCounter) count(ctx context.Context) {
	for wait(ctx, 5*time.Millisecond) {
		next := c.acknowledged.Load() + 1
		switch status, _ := c.request("PATCH", fmt.Sprintf(`{"data":{"n":%d}}`, next)); status {
		case http.StatusOK:
			c.acknowledged.Store(next)
		case http.StatusNotFound:
			if c.acknowledged.Load() > 0 {
				c.notFound.Store(true)
				return
			}
			c.request("PUT", `{"data":{"n":0}}`)
		}
	}
}

func (c *sessionCounter) request(method, body string) (status int, answer string) {
	response, answer, err := send(context.Background(), c.client, method, "/v1/sessions/"+c.id+"?pool=moving", body)
	if err != nil {
		return 0, ""
	}
	return response.StatusCode, answer
}

func (c *sessionCounter) read() (status int, n int64) {
	status, answer := c.request("GET", "")
	var s sessions.Session
	if json.Unmarshal([]byte(answer), &s) != nil || json.Unmarshal(s.Data["n"], &n) != nil {
		return 0, 0
	}
	return status, n
}

func TestALiveStoreCopySurvivesAKillOfTheAgentInEachPhase(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	env := newEnvWith(t)
	a := env.startAgent("moving")
	file := pythonSpec("moving", 1, "sessions.py")
	pool := env.startPool(file)
	const counters = 6
	counting, stop := context.WithCancel(t.Context())
	defer stop()
	var group sync.WaitGroup
	all := make([]*sessionCounter, counters)
	for i := range all {
		all[i] = &sessionCounter{client: env.gatewayClient("moving"), id: fmt.Sprint("count", i)}
		group.Go(func() { all[i].count(counting) })
	}
	// noneLost waits for one more acknowledged update of every counter, and requires that no acknowledged update is lost.
	noneLost := func(when string) {
		t.Helper()
		for _, c := range all {
			require.False(t, c.notFound.Load(), "%s: %s was not found", when, c.id)
			before := c.acknowledged.Load()
			var status int
			var n int64
			require.Eventually(t, func() bool { status, n = c.read(); return status == http.StatusOK }, waitTimeout,
				10*time.Millisecond, when)
			require.GreaterOrEqual(t, n, before, "%s: %s", when, c.id)
			awaitMore(t, when+": "+c.id+" continues", 1, &c.acknowledged)
		}
	}
	noneLost("before")
	copyCommand := func(args ...string) api.SessionCopy {
		t.Helper()
		return ctlJSON[api.SessionCopy](env, append([]string{"sessions", "copy", "moving"}, args...)...)
	}
	killAgent := func(phase api.CopyPhase) {
		t.Helper()
		before := env.waitReady(pool, 1).Workers[0].Incarnation
		a.kill()
		a = env.startAgent("moving")
		var last string
		gateway := env.gatewayClient("moving")
		require.Eventually(t, func() bool {
			_, last, _ = send(t.Context(), gateway, http.MethodGet, "/v1/admin/sessions/copy", "") // fails while it starts
			var c api.SessionCopy
			return json.Unmarshal([]byte(last), &c) == nil && c.Phase == phase && c.InSync
		}, waitTimeout, 20*time.Millisecond, "%s: %s", phase, &last)
		noneLost("killed when " + string(phase)) // sessions work even before the worker is ready again
		env.waitLater(pool, "the worker is back", before)
	}

	start := []string{"--from", "embedded", "--to", server.URL()}
	require.Contains(t, []api.CopyPhase{api.CopyCopying, api.CopyInSync}, copyCommand(append(start, "--no-wait")...).Phase)
	killAgent(api.CopyInSync) // it was killed while copying
	_, refusal := env.ctl(cli.ExitFailed, "sessions", "copy", "moving", "--finish")
	require.Contains(t, refusal, "cut-over first")
	begun := copyCommand(start...) // waits for the running copy
	require.True(t, begun.InSync)
	require.Equal(t, "embedded", begun.From)
	require.Equal(t, server.URL(), begun.To)

	require.Equal(t, api.CopyCutOver, copyCommand("--cut-over").Phase)
	noneLost("cut over")
	killAgent(api.CopyCutOver)
	copyCommand("--back")
	noneLost("gone back")
	killAgent(api.CopyInSync)
	copyCommand("--cut-over")

	_, refusal = env.ctl(cli.ExitFailed, "sessions", "copy", "moving", "--finish")
	require.Contains(t, refusal, `apply one with sessions.store = "redis"`)
	file.Sessions.Store, file.Sessions.URL = spec.StoreRedis, server.URL()
	_, err := pool.Apply(t.Context(), file)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		status, _ := request(t, env.gatewayClient("moving"), "POST", "/v1/admin/sessions/copy/step", `{"step":"finish"}`, "")
		return status == http.StatusOK
	}, waitTimeout, 50*time.Millisecond, "the copy can be finished once the worker runs the new spec")
	out, _ := env.ctl(cli.ExitOK, "sessions", "copy", "moving", "--status")
	require.Contains(t, out, "no copy of sessions is running")
	noneLost("finished")
	stop()
	group.Wait()
	a.stop()

	kept, err := redis.Open(redis.Options{URL: server.URL()})
	require.NoError(t, err)
	defer kept.Close()
	left, err := embedded.Open(embedded.Options{Path: env.dir + "/moving/sessions/sessions.db"})
	require.NoError(t, err)
	defer left.Close()
	for _, c := range all {
		found, err := kept.Get(t.Context(), c.id)
		require.NoError(t, err)
		require.JSONEq(t, fmt.Sprint(c.acknowledged.Load()), string(found.Data["n"]))
		before, err := left.Get(t.Context(), c.id)
		require.NoError(t, err)
		require.True(t, before.CreatedAt.Equal(found.CreatedAt), "the session was not created again")
		require.Less(t, before.Version, found.Version, "the old store is no longer written")
	}
}

// waitForGateway waits until the gateway answers.
func waitForGateway(t *testing.T, c *http.Client) *http.Client {
	t.Helper()
	require.Eventually(t, func() bool {
		_, _, err := send(t.Context(), c, http.MethodGet, "/healthz", "")
		return err == nil
	}, waitTimeout, 10*time.Millisecond)
	return c
}
