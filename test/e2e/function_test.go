package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/lifecycle"
	sdk "github.com/tempool/tempool/sdk/go"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker"
)

// functionsVariable makes an agent of these tests one that has functions.
const functionsVariable = "TEST_AGENT_HAS_FUNCTIONS"

// job is what the function of these tests is to do.
type job struct {
	Add   int    `json:"add"`
	Panic string `json:"panic"`
	Stuck string `json:"stuck"` // the call writes this file and never returns
}

func registerFunctions() {
	worker.Register("sum", func(ctx context.Context, j job) (int, error) {
		if j.Panic != "" {
			panic(j.Panic)
		}
		if j.Stuck != "" {
			if err := os.WriteFile(j.Stuck, nil, 0o600); err != nil {
				return 0, err
			}
			select {}
		}
		call := sdk.FromContext(ctx)
		if call.Headers["tempool-session"] == "" {
			return j.Add, nil
		}
		return sdk.Change(ctx, call.Session().Entries, "sum", func(n int) (int, error) { return n + j.Add, nil })
	})
}

func functionSpec(name, function string) spec.Spec {
	s := patient(spec.Default())
	s.Pool.Name, s.Pool.Size, s.Pool.Kind, s.Pool.Function = name, 1, spec.KindFunction, function
	return s
}

func (env *testEnv) startAgentWithFunctions(hostID string, args ...string) *agent {
	return env.startAgentBy([]string{"env", functionsVariable + "=1"}, hostID, args...)
}

// A pool waits for an agent that has its function. Then the function has the life of a worker. The next agents start it
// again, also those that keep processes.
func TestAFunctionHasTheLifeOfAWorker(t *testing.T) {
	env := oneHost(t, "without")
	s := functionSpec("functions", "sum")
	s.Rotation.MaxRequests, s.Rotation.Jitter = 5, 0
	s.Call.CancelGrace = spec.Duration(100 * time.Millisecond)
	pool := env.beginPool(s)
	state := env.waitState(pool, 0, lifecycle.Pending)
	require.Contains(t, state.Reason, `no agent with the function "sum"`)
	require.Contains(t, state.Reason, "whose program registers the function with worker.Register")

	agent := env.startAgentWithFunctions("functions")
	state = env.waitState(pool, 0, lifecycle.Ready)
	require.Equal(t, "functions", state.Host)
	require.Zero(t, state.PID)
	call := func(j job, session string) (sum int, err error) {
		err = pool.With(tempool.CallOptions{Session: session}).Call(t.Context(), "sum", j, &sum)
		return sum, err
	}

	// Sessions and leases.
	for n := 1; n <= 2; n++ {
		sum, err := call(job{Add: 1}, "me")
		require.NoError(t, err)
		require.Equal(t, n, sum)
	}
	lease := env.checkout(pool, tempool.CheckoutOptions{Holder: "me", Wait: waitTimeout})
	var sum int
	require.NoError(t, lease.Call(t.Context(), "sum", job{Add: 7}, &sum))
	require.Equal(t, 7, sum)
	require.NoError(t, lease.Checkin(t.Context(), tempool.OutcomeOK))

	// Rotation by requests.
	for range 2 {
		_, err := call(job{}, "")
		require.NoError(t, err)
	}
	rotated := env.waitLater(pool, "the worker is rotated", lease.Incarnation)
	require.Eventually(t, func() bool { // the replaced one serves calls until it drains
		h, err := env.client.HostHeartbeat(t.Context(), "functions")
		return err == nil && len(h.Processes) == 1 && h.Processes[0].Incarnation > lease.Incarnation
	}, waitTimeout, 100*time.Millisecond, "the replaced function has not ended")

	// A panic is a crash.
	_, err := call(job{Panic: "boom"}, "")
	require.ErrorContains(t, err, "panic: boom")
	crashed := env.waitLater(pool, "the worker has crashed and is back", rotated.Workers[0].Incarnation)

	// A call that never returns is cut, and its goroutine abandoned.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun, left := filepath.Join(env.dir, "begun"), make(chan error, 1)
	go func() { left <- pool.Call(ctx, "sum", job{Stuck: begun}, nil) }()
	require.Eventually(t, func() bool { _, err := os.Stat(begun); return err == nil }, waitTimeout, 20*time.Millisecond,
		"the call does not begin")
	cancel()
	require.Error(t, <-left)
	env.waitLater(pool, "the worker was cut and is back", crashed.Workers[0].Incarnation)

	var ends []lifecycle.State
	var reasons string
	for _, transition := range env.history(pool, 0) {
		if transition.Event == lifecycle.Exited {
			ends = append(ends, transition.To)
			reasons += transition.Reason + "\n"
		}
	}
	require.Equal(t, []lifecycle.State{lifecycle.Stopped, lifecycle.Failed, lifecycle.Killed}, ends, reasons)
	require.Contains(t, reasons, "panic: boom")
	require.Contains(t, reasons, "its goroutine is abandoned")

	for range 2 {
		last := env.waitState(pool, 0, lifecycle.Ready).Incarnation
		agent.stop() // an abandoned call does not keep the agent
		require.Zero(t, agent.cmd.ProcessState.ExitCode())
		agent = env.startAgentWithFunctions("functions", "--keep-processes")
		env.waitLater(pool, "the worker is back", last)
		sum, err = call(job{Add: 2}, "")
		require.NoError(t, err)
		require.Equal(t, 2, sum)
	}
}
