package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/cli"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/worker"
)

func TestCallsSpreadOverTwoAgentsAndSurviveTheDeathOfOne(t *testing.T) {
	env := newEnv(t)
	left, _ := env.startAgent("left", "--capacity", "2"), env.startAgent("right", "--capacity", "2")
	pool := env.startPool(echoSpec("spread", 4))
	env.eachWorkerCanBeCalled(pool)
	var mu sync.Mutex
	served := map[string]int{}
	watched := pool.With(tempool.CallOptions{Timeout: waitTimeout, Answered: func(a tempool.Answer) {
		mu.Lock()
		defer mu.Unlock()
		served[a.Endpoint]++
	}})
	call := func(ctx context.Context, text string) error {
		var answer string
		err := watched.Call(ctx, "echo", text, &answer)
		if err == nil && answer != text {
			return fmt.Errorf("sent %q and got %q", text, answer)
		}
		return err
	}
	// Calls that the dying host may have started fail with Started; the client sends all others to the other host.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var callers sync.WaitGroup
	var dying, dead atomic.Bool // from before and after the kill on
	var done, broken atomic.Int64
	for i := range 8 {
		callers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				afterDeath := dead.Load()
				err := call(ctx, fmt.Sprint(i, ".", n))
				var coded *api.Error
				switch {
				case err == nil:
					done.Add(1)
				case ctx.Err() != nil:
				case dying.Load() && !afterDeath && errors.As(err, &coded) && coded.Started:
					broken.Add(1)
				default:
					t.Errorf("call %d of caller %d, after the death: %v: %v", n, i, afterDeath, err)
					return
				}
			}
		})
	}
	sockets := []string{"unix:" + filepath.Join(env.dir, "left", worker.SocketName), "unix:" +
		filepath.Join(env.dir, "right", worker.SocketName)}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(served) == 2 && served[sockets[0]] >= 50 && served[sockets[1]] >= 50
	}, waitTimeout, time.Millisecond, "both hosts serve")
	dying.Store(true)
	left.kill()
	dead.Store(true)
	before := done.Load()
	require.Eventually(t, func() bool { return done.Load() > before+200 }, waitTimeout, time.Millisecond)
	cancel()
	callers.Wait()
	t.Logf("%d calls succeeded, %d failed with the agent", done.Load(), broken.Load())
}

// eachWorkerCanBeCalled calls each of four workers of two hosts, whatever host it is on.
func (env *testEnv) eachWorkerCanBeCalled(pool *tempool.Pool) {
	env.t.Helper()
	hosts := map[string]bool{}
	for _, worker := range env.waitReady(pool, 4).Workers {
		hosts[worker.Host] = true
	}
	require.Len(env.t, hosts, 2)
	for slot := range 4 {
		var answer tempool.Answer
		worker := pool.With(tempool.CallOptions{Answered: func(a tempool.Answer) { answer = a }}).Worker(slot)
		for i := range 3 {
			var got int
			require.NoError(env.t, worker.Call(env.t.Context(), "echo", i, &got))
			require.Equal(env.t, i, got)
			require.Equal(env.t, api.WorkerName(pool.Name(), slot), answer.Worker)
		}
	}
	require.ErrorIs(env.t, pool.Worker(9).Call(env.t.Context(), "echo", nil, nil), tempool.ErrWorkerNotFound)

	// A call waits for the next process of its worker.
	before, err := pool.State(env.t.Context(), 2)
	require.NoError(env.t, err)
	killProcess(env.t, before.PID)
	require.Eventually(env.t, func() bool {
		var got int
		return pool.Worker(2).Call(env.t.Context(), "echo", 7, &got) == nil && got == 7
	}, waitTimeout, 50*time.Millisecond)
	after, err := pool.State(env.t.Context(), 2)
	require.NoError(env.t, err)
	require.Greater(env.t, after.Incarnation, before.Incarnation)
}

func renewedLease(env *testEnv) {
	t := env.t
	pool := env.startPool(echoSpec("kept", 1))
	const ttl = 30 * time.Second // a client that is not run for 20 s of it loses its lease
	lease := env.checkout(pool, tempool.CheckoutOptions{Holder: "me", TTL: ttl, Wait: waitTimeout})
	var pid int
	require.NoError(t, json.Unmarshal(callLease(t, lease, "pid"), &pid))
	calls := int64(1)
	var held api.WorkerState
	// so it was renewed after its first end, with a call now and then
	for held.Lease == nil || held.Lease.ExpiresAt.Before(lease.ExpiresAt.Add(ttl)) {
		select {
		case <-lease.Done():
			require.NoError(t, lease.Err(), "the lease was lost")
		case <-time.After(500 * time.Millisecond):
			var again int
			require.NoError(t, json.Unmarshal(callLease(t, lease, "pid"), &again))
			require.Equal(t, pid, again)
			calls++
			held = env.waitState(pool, 0, lifecycle.Busy)
			require.Equal(t, lease.ID, held.Lease.ID)
		}
	}
	require.NoError(t, lease.Checkin(t.Context(), api.OutcomeOK))
	freed := env.waitState(pool, 0, lifecycle.Ready)
	require.Equal(t, held.Incarnation, freed.Incarnation)
	env.waitFor(pool, "each call is counted once", func(v api.PoolWorkers) bool {
		require.LessOrEqual(t, v.Workers[0].RequestsServed, calls)
		return v.Workers[0].RequestsServed == calls
	})
}

// Nobody has called the pool for a while. A client holds one of its workers. Another pool is called all the time.
func TestAnIdlePoolServesWithoutTemporal(t *testing.T) {
	env := oneHost(t, "rested")
	pool := env.startPool(echoSpec("rested", 3))
	env.waitReady(pool, 3)
	client := env.gatewayClient("rested")
	lease := decode[api.Lease](t, mustRequest(t, client, "POST", "/v1/pools/rested/leases",
		`{"holder":"me","wait_ms":30000,"ttl_ms":600000}`, ""))
	under := "/v1/leases/" + lease.ID + "~" + lease.Token
	mustRequest(t, client, "POST", under+"/call/echo", `1`, "")
	steady := env.startPool(echoSpec("steady", 1))
	require.NoError(t, steady.Call(t.Context(), "echo", 1, nil))
	sleep(t, 5*time.Second)
	require.NoError(t, env.server.Kill())
	<-env.server.Done()
	// long enough for the client to refresh its roster in vain
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
		var answer int
		require.NoError(t, steady.Call(t.Context(), "echo", 7, &answer))
		require.Equal(t, 7, answer)
		sleep(t, 20*time.Millisecond)
	}
	l := startLoad(t, client, "/v1/pools/rested/call/echo", 1000, 4)
	require.Eventually(t, func() bool { return l.calls.Load() >= 3_000 }, waitTimeout, 10*time.Millisecond)
	require.Equal(t, `2`, mustRequest(t, client, "POST", under+"/call/echo", `2`, ""))
	l.stop()
	require.Zero(t, l.failed.Load(), "of %d calls: %s", l.calls.Load(), l.firstFailure())
	status, _ := request(t, client, "DELETE", under, "", "")
	require.Equal(t, http.StatusServiceUnavailable, status, "Temporal learns of it later")
	mustRequest(t, client, "POST", "/v1/pools/rested/workers/"+strconv.Itoa(workerSlot(t, lease))+"/call/echo", `3`, "")
	require.NoError(t, env.server.Restart(t.Context()))
	state := env.waitState(pool, workerSlot(t, lease), lifecycle.Ready)
	require.Equal(t, lease.Incarnation, state.Incarnation, "the lease was returned, and did not expire")
}

func workerSlot(t *testing.T, lease api.Lease) int {
	t.Helper()
	_, slot, err := api.ParseWorkerName(lease.Worker)
	require.NoError(t, err)
	return slot
}

func ctlCall(env *testEnv) {
	t := env.t
	pool := env.startPool(echoSpec("callee", 2))
	out, _ := env.ctl(cli.ExitOK, "call", "callee", "echo", `{"text": "hi"}`)
	require.Equal(t, `{"text": "hi"}`, out)
	answer := ctlJSON[struct {
		Worker      string
		Incarnation int64
		Endpoint    string
		Result      int
	}](env, "call", "callee", "pid")
	require.True(t, strings.HasPrefix(answer.Worker, "callee/"), answer.Worker)
	require.True(t, slices.ContainsFunc(env.waitReady(pool, 2).Workers, func(w api.Worker) bool {
		return w.Worker == answer.Worker && w.Incarnation == answer.Incarnation
	}), "%+v", answer)
	require.True(t, processAlive(answer.Result), "the process that answered")
	_, failure := env.ctl(cli.ExitFailed, "call", "callee", "nosuch")
	require.Contains(t, failure, "nosuch")
	_, failure = env.ctl(cli.ExitFailed, "call", "ghost", "echo")
	require.Contains(t, failure, "ghost")

	direct, _ := env.ctl(cli.ExitOK, "call", "callee", "echo", "1", "--gateway", answer.Endpoint)
	require.Equal(t, "1", direct)
}
