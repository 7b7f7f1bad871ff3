package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/cli"
	"github.com/tempool/tempool/lifecycle"
)

// tempool runs a command and returns its exit code.
func (env *testEnv) tempool(ctx context.Context, out, errors io.Writer, args ...string) int {
	server := []string{"--address", env.server.Address(), "--namespace", env.server.Namespace()}
	return cli.Run(ctx, append(server, args...), out, errors)
}

// ctl runs a command, requires its exit code and returns its output.
func (env *testEnv) ctl(code int, args ...string) (out, errors string) {
	env.t.Helper()
	var stdout, stderr bytes.Buffer
	got := env.tempool(env.t.Context(), &stdout, &stderr, append(args, "--timeout", waitTimeout.String())...)
	require.Equal(env.t, code, got, "tempool %v\n%s%s", args, &stdout, &stderr)
	return stdout.String(), stderr.String()
}

// ctlJSON runs a command with -o json and decodes its output.
func ctlJSON[T any](env *testEnv, args ...string) (answer T) {
	env.t.Helper()
	out, _ := env.ctl(cli.ExitOK, append(args, "-o", "json")...)
	require.NoError(env.t, json.Unmarshal([]byte(out), &answer), out)
	return answer
}

func TestCtlRunsAPoolFromStartToStop(t *testing.T) {
	env := newEnv(t)
	settings := filepath.Join(env.dir, "agent.toml")
	require.NoError(t, os.WriteFile(settings, []byte("log_level = \"error\"\n"), 0o600))
	agent := env.startAgent("demo", "--config", settings)
	file := filepath.Join(env.dir, "pool.toml")
	s := echoSpec("demo", 2)
	content := fmt.Sprintf("[pool]\nname = %q\nsize = %d\ncommand = [%q, %q]\ndir = %q\nenv = {PYTHONPATH = %q}\n",
		s.Pool.Name, s.Pool.Size, s.Pool.Command[0], s.Pool.Command[1], s.Pool.Dir, s.Pool.Env["PYTHONPATH"])
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))

	env.ctl(cli.ExitOK, "setup")
	out, _ := env.ctl(cli.ExitOK, "pool", "start", "-f", file, "--wait-timeout", waitTimeout.String())
	require.Contains(t, out, "Workers (2/2 ready)")
	view := ctlJSON[api.PoolWorkers](env, "ps", "demo")
	require.Equal(t, 2, view.Ready)
	require.Positive(t, view.Workers[0].PID)

	answer := ctlJSON[struct {
		Worker      string
		Incarnation int64
		Endpoint    string
		Result      int
	}](env, "call", "demo/1", "pid")
	require.Equal(t, view.Workers[1].Worker, answer.Worker)
	require.Equal(t, view.Workers[1].Incarnation, answer.Incarnation)
	require.Equal(t, view.Workers[1].PID, answer.Result, "the process that answered")
	direct, _ := env.ctl(cli.ExitOK, "call", "demo", "echo", `{"text": "hi"}`, "--gateway", answer.Endpoint)
	require.Equal(t, `{"text": "hi"}`, direct)
	for pool, says := range map[string]string{"demo": "nosuch", "ghost": "ghost"} {
		_, failure := env.ctl(cli.ExitFailed, "call", pool, "nosuch")
		require.Contains(t, failure, says)
	}

	lease := ctlJSON[api.Lease](env, "checkout", "demo/1", "--holder", "me", "--ttl", "5m")
	require.Equal(t, "demo/1", lease.Worker)
	leased := func() *api.Lease { return ctlJSON[api.PoolWorkers](env, "ps", "demo").Workers[1].Lease }
	require.Eventually(t, func() bool { l := leased(); return l != nil && l.Holder == "me" }, waitTimeout,
		100*time.Millisecond, "also if it is not used; a worker that does not answer within 2 s is shown without")
	_, refusal := env.ctl(cli.ExitFailed, "checkout", "demo/1", "--holder", "you")
	require.Contains(t, refusal, "me")
	env.ctl(cli.ExitOK, "checkin", lease.ID)
	require.Eventually(t, func() bool { return leased() == nil }, waitTimeout, 100*time.Millisecond)
	_, stale := env.ctl(cli.ExitFailed, "checkin", lease.ID)
	require.Contains(t, stale, lease.ID)

	pool := env.client.Pool("demo")
	env.ctl(cli.ExitOK, "pool", "scale", "demo", "3")
	for slot, w := range env.waitReady(pool, 3).Workers[:2] {
		require.Equal(t, view.Workers[slot].PID, w.PID, "scaling restarts no other worker")
	}
	env.ctl(cli.ExitOK, "workers", "suspend", "demo/0")
	require.Equal(t, lifecycle.Suspended, env.waitState(pool, 0, lifecycle.Suspended).State)
	env.ctl(cli.ExitOK, "workers", "resume", "demo/0")
	env.ctl(cli.ExitOK, "workers", "drain", "demo/0", "--reason", "new disk")
	require.Contains(t, env.waitState(pool, 0, lifecycle.Stopped).Reason, "new disk")
	env.ctl(cli.ExitOK, "workers", "restart", "demo")
	env.waitReady(pool, 3)
	stats, _ := env.ctl(cli.ExitOK, "workers", "stats", "demo")
	require.Contains(t, stats, "demo/2")
	env.ctl(cli.ExitUsage, "workers", "dance", "demo")
	env.ctl(cli.ExitUsage, "ps", "-o", "xml")

	require.Eventually(t, func() bool { // heartbeats follow within seconds
		hosts := ctlJSON[[]struct {
			api.HostStatus
			Memory int64 `json:"memory_bytes"`
			Pools  map[string]int
		}](env, "hosts")
		return len(hosts) == 1 && hosts[0].State == api.HostUp && hosts[0].Pools["demo"] == 3 && hosts[0].Memory > 0
	}, waitTimeout, 200*time.Millisecond)
	names, _ := env.ctl(cli.ExitOK, "hosts", "-o", "name")
	require.Equal(t, "demo\n", names)

	env.ctl(cli.ExitOK, "pool", "stop", "demo", "--wait-timeout", waitTimeout.String())
	require.Empty(t, hostProcesses("demo"))
	require.True(t, asked(env, pool.Status).Ended, "the last status of a stopped pool is available")
	out, _ = env.ctl(cli.ExitOK, "ps", "demo")
	require.Contains(t, out, "Pool demo has stopped; this is its last state")
	out, _ = env.ctl(cli.ExitOK, "workers", "stats", "demo")
	require.Contains(t, out, "Pool demo has stopped")
	for _, late := range [][]string{{"call", "demo", "echo", `"too late"`}, {"sessions", "list", "demo"}} {
		_, refusal := env.ctl(cli.ExitFailed, late...)
		require.Contains(t, refusal, "pool demo has ended", late)
	}
	_, err := pool.TryCheckout(t.Context(), tempool.CheckoutOptions{Holder: "late"})
	require.ErrorIs(t, err, api.ErrPoolNotFound)
	_, failure := env.ctl(cli.ExitFailed, "ps", "nosuch")
	require.Contains(t, failure, "nosuch")

	require.NoError(t, os.WriteFile(settings, []byte("log_level = \"info\"\n"), 0o600))
	require.NoError(t, agent.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool {
		log, err := os.ReadFile(agent.log)
		return err == nil && bytes.Contains(log, []byte("read the settings again"))
	}, waitTimeout, 50*time.Millisecond)
	log, err := os.ReadFile(agent.log)
	require.NoError(t, err)
	before, _, _ := bytes.Cut(log, []byte("read the settings again"))
	require.Equal(t, 1, bytes.Count(before, []byte("INFO")), "the file was in force at the start, too: %s", log)
}

func TestADrainedHostLosesItsWorkersAndGetsNoneUntilItIsUndrained(t *testing.T) {
	env := newEnv(t)
	agent := env.startAgent("a", "--capacity", "6")
	pool := env.startPool(echoSpec("moves", 3))
	env.startAgent("b", "--capacity", "6")
	allOn := func(host string, size int) {
		t.Helper()
		for _, w := range env.waitReady(pool, size).Workers {
			require.Equal(t, host, w.Host, w.Worker)
		}
	}
	env.ctl(cli.ExitOK, "hosts", "drain", "a", "--reason", "new kernel")
	allOn("b", 3)
	agent.kill()
	env.startAgent("a", "--capacity", "6")
	env.hostStatus("a", "the next agent joined", func(s api.HostStatus) bool { return up(s) && s.Epoch == 2 })
	env.ctl(cli.ExitOK, "pool", "scale", "moves", "5")
	allOn("b", 5)
	out, _ := env.ctl(cli.ExitOK, "hosts")
	require.Regexp(t, `(?m)^a +up, draining +2 .* 0/`, out)

	env.ctl(cli.ExitOK, "hosts", "undrain", "a")
	env.ctl(cli.ExitOK, "hosts", "drain", "b")
	allOn("a", 5)
	_, failure := env.ctl(cli.ExitFailed, "hosts", "drain", "nosuch")
	require.Contains(t, failure, "tempool hosts lists them")
}

func fullHistory(env *testEnv) {
	t := env.t
	pool := env.startPool(echoSpec("history", 1))
	const rounds = 3
	for range rounds {
		for range 60 { // 120 transitions: more than the ring holds
			require.NoError(t, leaseOnce(t.Context(), pool))
		}
		env.continueAsNew(api.WorkerWorkflowID("history", 0))
	}
	env.waitState(pool, 0, lifecycle.Ready)
	newest := ctlJSON[[]lifecycle.Transition](env, "history", "history/0")
	require.Len(t, newest, lifecycle.RingSize)
	all := ctlJSON[[]lifecycle.Transition](env, "history", "history/0", "--all")
	require.Len(t, all, 2+rounds*120, "start, started, and two for each lease")
	require.Equal(t, lifecycle.Created, all[0].From)
	for i := 1; i < len(all); i++ {
		require.Equal(t, all[i-1].To, all[i].From, "transition %d", i)
	}
}
