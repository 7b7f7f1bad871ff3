package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker"
)

// gatewayClient returns an HTTP client for the Unix socket of an agent.
func (env *testEnv) gatewayClient(hostID string) *http.Client {
	socket := filepath.Join(env.dir, hostID, worker.SocketName)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	env.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: waitTimeout}
}

// post sends a call and returns the status, the body, and the code of a problem.
func post(t *testing.T, c *http.Client, path, body string) (status int, answer, code string) {
	t.Helper()
	response, err := c.Post("http://gateway"+path, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	var problem struct{ Code string }
	if response.StatusCode >= http.StatusBadRequest {
		require.NoError(t, json.Unmarshal(content, &problem), "%s", content)
	}
	return response.StatusCode, string(content), problem.Code
}

// outage is how long Temporal is down in TestGatewayCallsSucceedWhileTemporalIsDownAndAreCountedOnce; make soak uses a
// minute.
var outage = flag.Duration("outage", 15*time.Second, "how long Temporal is down while calls are made")

func TestGatewayCallsSucceedWhileTemporalIsDownAndAreCountedOnce(t *testing.T) {
	env := oneHost(t, "plane")
	s := echoSpec("plane", 2)
	// a fast machine would reach the default limit
	s.Rotation.MaxRequests = 0
	pool := env.startPool(s)
	started := env.waitReady(pool, s.Pool.Size).Workers
	client := env.gatewayClient("plane")
	var calls atomic.Int64
	load, ctx := errgroup.WithContext(t.Context())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range 4 {
		load.Go(func() error {
			for ctx.Err() == nil {
				response, err := client.Post("http://gateway/v1/pools/plane/call/echo", "application/json",
					strings.NewReader(`"still here"`))
				if err != nil {
					return err
				}
				answer, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if err != nil || string(answer) != `"still here"` {
					return fmt.Errorf("status %d: %s (%v)", response.StatusCode, answer, err)
				}
				calls.Add(1)
			}
			return nil
		})
	}
	require.Eventually(t, func() bool { return calls.Load() > 100 || ctx.Err() != nil }, waitTimeout, 10*time.Millisecond)
	require.NoError(t, env.server.Kill())
	<-env.server.Done()
	before := calls.Load()
	sleep(t, *outage)
	require.Eventually(t, func() bool { return calls.Load() > before+100 || ctx.Err() != nil }, waitTimeout,
		10*time.Millisecond)
	cancel()
	require.NoError(t, load.Wait())
	require.NoError(t, env.server.Restart(t.Context()))
	view := env.waitFor(pool, "each call is reported once", func(v api.PoolWorkers) bool {
		var reported int64
		idle := true
		for _, worker := range v.Workers {
			reported += worker.RequestsServed
			idle = idle && worker.State == lifecycle.Ready
		}
		require.LessOrEqual(t, reported, calls.Load())
		return reported == calls.Load() && idle
	})
	require.Equal(t, started[0].Incarnation, view.Workers[0].Incarnation)
	t.Logf("%d calls, most of them while Temporal was down", calls.Load())
}

func callsOfACrashedProcess(env *testEnv) {
	t := env.t
	pool, _ := env.startTroublePool("counting", 1)
	client := env.gatewayClient("host")
	for range 7 {
		mustRequest(t, client, "POST", "/v1/pools/counting/call/add", `[1, 2]`, "")
	}
	status, _, code := post(t, client, "/v1/pools/counting/call/die", ``)
	require.Equal(t, http.StatusBadGateway, status)
	require.Equal(t, string(api.CodeWorkerCrashed), code)
	env.waitFor(pool, "the next process is ready, and all calls of the one before are counted",
		func(v api.PoolWorkers) bool {
			w := v.Workers[0]
			require.LessOrEqual(t, w.RequestsServed, int64(8))
			return v.Ready == 1 && w.Incarnation > 1 && w.RequestsServed == 8 && w.RequestsFailed == 1
		})
	mustRequest(t, client, "POST", "/v1/pools/counting/call/add", `[1, 2]`, "")
	env.waitFor(pool, "the ninth call is reported", func(v api.PoolWorkers) bool {
		require.LessOrEqual(t, v.Workers[0].RequestsServed, int64(9))
		return v.Workers[0].RequestsServed == 9
	})
}

func TestAGatewayNamesAHostAndItsCallsAreCountedUpToItsLastHeartbeat(t *testing.T) {
	env := newEnv(t)
	first := env.startAgent("word-a")
	s := echoSpec("lastword", 1)
	pool := env.startPool(s)
	client := env.gatewayClient("word-a")
	for range 5 {
		mustRequest(t, client, "POST", "/v1/pools/lastword/call/echo", `1`, "")
	}
	require.Eventually(t, func() bool {
		heartbeat, err := env.client.HostHeartbeat(t.Context(), "word-a")
		return err == nil && len(heartbeat.Processes) == 1 && heartbeat.Processes[0].Usage.Requests == 5
	}, waitTimeout, 50*time.Millisecond, "no heartbeat reported the calls")

	// A gateway without a worker names one that has.
	env.startPool(echoSpec("single", 1))
	env.startAgent("hasnot", "--labels", "other")
	idle := env.gatewayClient("hasnot")
	var a attempt
	require.Eventually(t, func() bool {
		a = tryCall(idle, "hasnot", "/v1/pools/single/call/echo", "1")
		return a.err == nil && a.problem.Code == api.CodeNoWorkers
	}, waitTimeout, 20*time.Millisecond, "the second gateway is up and knows the pool: %v", &a)
	require.False(t, a.problem.Started)
	require.Equal(t, []api.Peer{{Host: "word-a", Endpoint: "unix:" + env.dir + "/word-a/" + worker.SocketName}},
		a.problem.Gateways)
	require.True(t, tryCall(client, "word-a", "/v1/pools/single/call/echo", "1").ok())

	first.kill()
	env.startAgent("word-b")
	view := env.waitFor(pool, "the worker is on the other host",
		func(v api.PoolWorkers) bool { return v.Ready == 1 && v.Workers[0].Host == "word-b" })
	require.EqualValues(t, 5, view.Workers[0].RequestsServed)
}

func rollingRestart(env *testEnv) {
	t := env.t
	sp := echoSpec("rolling", 3)
	sp.Rotation.Surge, sp.Rotation.DrainTimeout = false, spec.Duration(waitTimeout)
	pool := env.startPool(sp)
	l := startLoad(t, env.gatewayClient("host"), "/v1/pools/rolling/call/echo", 100, 1)
	_, err := pool.Restart(t.Context(), api.RestartRequest{Reason: "under load"})
	require.NoError(t, err)
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
