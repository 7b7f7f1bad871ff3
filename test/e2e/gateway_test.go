package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker"
)

// socket is the Unix socket of an agent.
func (env *testEnv) socket(hostID string) string {
	return filepath.Join(env.dir, hostID, worker.SocketName)
}

// clientOf returns a client of the gateway of an agent, which does without Temporal.
func (env *testEnv) clientOf(hostID string) *tempool.Client {
	env.t.Helper()
	c, err := tempool.Dial(env.t.Context(), tempool.Options{Gateways: []string{"unix:" + env.socket(hostID)}})
	require.NoError(env.t, err)
	env.t.Cleanup(c.Close)
	return c
}

// gatewayClient returns an HTTP client for the Unix socket of an agent.
func (env *testEnv) gatewayClient(hostID string) *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", env.socket(hostID))
	}}
	env.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: waitTimeout}
}

// send makes a request of a gateway and reads its answer. Each two headers are a name and a value; those without a
// value are not sent.
func send(ctx context.Context, c *http.Client, method, path, body string, headers ...string) (response *http.Response,
	answer string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://gateway"+path, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	for ; len(headers) > 0; headers = headers[2:] {
		if headers[1] != "" {
			request.Header.Set(headers[0], headers[1])
		}
	}
	if response, err = c.Do(request); err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response, string(content), err
}

// post sends a call and returns the status, the body, and the code of a problem.
func post(t *testing.T, c *http.Client, path, body string) (status int, answer, code string) {
	t.Helper()
	response, answer, err := send(t.Context(), c, http.MethodPost, path, body)
	require.NoError(t, err)
	var problem struct{ Code string }
	if response.StatusCode >= http.StatusBadRequest {
		require.NoError(t, json.Unmarshal([]byte(answer), &problem), "%s", answer)
	}
	return response.StatusCode, answer, problem.Code
}

// outage is how long Temporal is down in TestPoolsServeWhileTemporalIsDown; make soak uses a minute. It is longer than
// the time-out of heartbeats: the server that is back considers the agent lost.
var outage = flag.Duration("outage", 15*time.Second, "how long Temporal is down while calls are made")

// One pool is called all the time, by its gateway and by a client. Nobody has called the other one for a while; one of
// its workers is leased. Each call is answered, and counted once; no process is replaced, and the lease lasts.
func TestPoolsServeWhileTemporalIsDown(t *testing.T) {
	env := oneHost(t, "outage")
	s := echoSpec("plane", 2)
	// a fast machine would reach the default limit
	s.Rotation.MaxRequests = 0
	plane, rested := env.startPool(s), env.startPool(echoSpec("rested", 3))
	before := map[*tempool.Pool][]api.Worker{plane: env.waitReady(plane, 2).Workers,
		rested: env.waitReady(rested, 3).Workers}
	client := env.gatewayClient("outage")
	kept := env.checkout(rested, tempool.CheckoutOptions{Holder: "me", TTL: time.Hour})
	callLease(t, kept, "echo")

	busy := startLoad(t, client, "/v1/pools/plane/call/echo", 200, 4)
	require.NoError(t, plane.Call(t.Context(), "echo", 1, nil))
	calls := int64(1) // of the client
	sleep(t, 5*time.Second)
	require.NoError(t, env.server.Kill())
	<-env.server.Done()
	// long enough for the client to refresh its roster in vain
	for end := time.Now().Add(*outage); time.Now().Before(end); calls++ {
		var answer int
		require.NoError(t, plane.Call(t.Context(), "echo", 7, &answer))
		require.Equal(t, 7, answer)
		sleep(t, 20*time.Millisecond)
	}
	awaitMore(t, "calls by the gateway", 100, &busy.calls)
	l := startLoad(t, client, "/v1/pools/rested/call/echo", 1000, 4)
	require.Eventually(t, func() bool { return l.calls.Load() >= 3_000 }, waitTimeout, 10*time.Millisecond)
	callLease(t, kept, "echo")
	for _, load := range []*loadGenerator{l, busy} {
		load.stop()
		require.Zero(t, load.failed.Load(), "of %d calls: %s", load.calls.Load(), load.firstFailure())
	}

	require.NoError(t, env.server.Restart(t.Context()))
	env.waitReady(plane, 2)
	sleep(t, 25*time.Second) // until every timer that could fail the workers because of the outage has fired
	calls += busy.calls.Load()
	env.waitFor(plane, "each call is reported once", func(v api.PoolWorkers) bool {
		reported := v.Workers[0].RequestsServed + v.Workers[1].RequestsServed
		require.LessOrEqual(t, reported, calls)
		return reported == calls && v.Ready == 2
	})
	_, err := env.client.CheckinNow(t.Context(), api.CheckinRequest{LeaseID: kept.ID})
	require.NoError(t, err)
	for pool, workers := range before {
		for slot, was := range workers {
			is := env.waitState(pool, slot, lifecycle.Ready)
			require.Equal(t, was.Incarnation, is.Incarnation)
			require.Equal(t, was.PID, is.PID)
		}
	}
}

func rollingRestart(env *testEnv) {
	t := env.t
	sp := echoSpec("rolling", 3)
	sp.Rotation.Surge, sp.Rotation.DrainTimeout = false, spec.Duration(waitTimeout)
	pool := env.startPool(sp)
	l := startLoad(t, env.gatewayClient("host"), "/v1/pools/rolling/call/echo", 100, 1)
	env.restart(pool, api.RestartRequest{Reason: "under load"})
	env.waitFor(pool, "all have restarted", func(v api.PoolWorkers) bool {
		if status, err := pool.Status(t.Context()); err == nil {
			require.GreaterOrEqual(t, status.Ready, 2, "at most max_unavailable workers are out of service")
		}
		return v.Rollout == nil && v.Ready == 3 && v.Workers[0].Incarnation > 1 && v.Workers[1].Incarnation > 1 &&
			v.Workers[2].Incarnation > 1
	})
	require.Eventually(t, func() bool { return l.calls.Load() > 0 }, waitTimeout, 10*time.Millisecond)
	l.stop()
	require.Zero(t, l.failed.Load(), "of %d calls: %s", l.calls.Load(), l.firstFailure())
}
