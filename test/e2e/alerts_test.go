//go:build alerts

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/sessions/redis/redistest"
	"github.com/tempool/tempool/spec"
)

// onlyFromSeries are the alerts whose condition takes too long to make here; scripts/check-alerts.sh tests them, as all
// others, with series that it makes up.
var onlyFromSeries = []string{
	"TempoolGatewayFenced",  // Temporal is away for five minutes
	"TempoolHistoryTooLong", // a run has 16,384 history events, and workflow tasks that fail
}

// condition is one that an alert names, about a pool, a store or an instance.
type condition struct {
	alert, about string
	// again makes it once more, if it has to happen more than once; it does not wait.
	again func()
}

// awaitAlerts waits until an alert fires for each condition.
func awaitAlerts(t *testing.T, p *prometheus, conditions []condition) {
	t.Helper()
	began := time.Now()
	for deadline := began.Add(2 * waitTimeout); len(conditions) > 0; sleep(t, 100*time.Millisecond) {
		var left []condition
		for _, c := range conditions {
			firing := p.firing(c.alert, c.about)
			if firing == nil {
				if left = append(left, c); c.again != nil {
					c.again()
				}
				continue
			}
			t.Logf("%5.1f s: %s: %s", time.Since(began).Seconds(), c.alert, firing.Annotations["summary"])
			for _, text := range firing.Annotations {
				require.NotRegexp(t, "<(error|no value)", text)
			}
			require.Contains(t, firing.Annotations["summary"], c.about)
		}
		if conditions = left; time.Now().After(deadline) {
			var missing []string
			for _, c := range conditions {
				missing = append(missing, c.alert+" about "+c.about)
			}
			require.FailNow(t, "alerts do not fire", "%s; there are %+v", strings.Join(missing, ", "), p.alerts())
		}
	}
}

// TestAlertsFireOnTheConditionsTheyName makes what each alert names, and waits until a Prometheus that scrapes the
// agents says so.
func TestAlertsFireOnTheConditionsTheyName(t *testing.T) {
	env := newEnv(t)
	instances := map[string]string{"main": ownAddress(t), "full": ownAddress(t), "gone": ownAddress(t),
		"again": ownAddress(t)}
	start := func(instance string, args ...string) *agent {
		return env.startAgent(instance, append([]string{"--listen", instances[instance]}, args...)...)
	}
	start("main")
	start("full", "--labels", "full", "--capacity", "1")
	gone, again := start("gone", "--labels", "gone"), start("again", "--labels", "again")
	p := startPrometheus(t, instances)
	gateway := env.gatewayClient("main")

	obstinate := pythonSpec("obstinate", 1, "ends.py")
	obstinate.Pool.Env["OBSTINATE"], obstinate.Pool.StopGrace = "1", spec.Duration(100*time.Millisecond)
	killed := env.startPool(obstinate)

	changing := echoSpec("changing", 2)
	changing.Recovery.MaxConsecutiveFailures = 1
	changed := env.startPool(changing)

	dying := echoSpec("dying", 1)
	dying.Recovery.MaxConsecutiveFailures, dying.Recovery.BackoffMax = 1000, dying.Recovery.BackoffInitial
	restarted, last := env.startPool(dying), int64(0)

	erring := env.troubleSpec("erring", 1)
	erring.Health.MaxCallErrors = 0
	env.startPool(erring)

	ill := pythonSpec("ill", 1, "health.py")
	ill.Health.Interval, ill.Health.MaxFailures = spec.Duration(time.Second), 1000
	env.startPool(ill)

	release := filepath.Join(env.dir, "release")
	occupied := env.startPool(env.troubleSpec("busy", 1))

	env.startPool(pythonSpec("floods", 1, "floods.py"))

	small := pythonSpec("small", 1, "sessions.py")
	small.Sessions.Store, small.Sessions.Max, small.Sessions.OnFull = spec.StoreMemory, 1, spec.OnFullRefuse
	env.startPool(small)

	redis := redistest.Start(t)
	kept := pythonSpec("kept", 1, "sessions.py")
	kept.Sessions.Store, kept.Sessions.URL = spec.StoreRedis, redis.URL()
	env.startPool(kept)
	mustRequest(t, gateway, "POST", "/v1/pools/kept/call/remember", `["k", 1]`, "mine")

	slow := shellSpec("slow", 1, "exec sleep 100000")
	slow.Health.Command, slow.Health.Interval = []string{"sleep", "3"}, spec.Duration(100*time.Millisecond)
	env.startPool(slow)

	for _, query := range []string{ // an increase needs a count from before
		`up{instance="gone"} == 1`, `tempool_agent_epoch{instance="again"}`,
		`tempool_log_lines_dropped_total{instance="main"}`,
		`tempool_pool_processes_ended_total{pool="obstinate", outcome="killed"}`,
		`tempool_pool_queue_wait_seconds_count{pool="busy"}`,
		`tempool_worker_restarts_total{pool="dying"}`, `tempool_session_operation_failures_total{store="redis"}`,
	} {
		require.Eventually(t, func() bool { return p.has(query) }, waitTimeout, 100*time.Millisecond, "Prometheus has no %s",
			query)
	}
	var early []alert
	require.Eventually(t, func() bool {
		early = p.alerts()
		return len(early) == 0 || len(early) == 1 && early[0].Labels["alertname"] == "TempoolProbesSlow"
	}, waitTimeout, 100*time.Millisecond, "nothing is wrong yet, but %+v", &early)

	// Calls that wait while the only worker is busy.
	waited := make(chan error, 3)
	for range cap(waited) {
		go func() {
			waited <- occupied.Call(t.Context(), "wait_for", []any{release}, nil)
		}()
	}
	var waitsSince time.Time
	// Problems that occur once and last.
	gone.kill()
	redis.Kill()
	broken := pythonSpec("broken", 1, "broken.py")
	// a call may come while it still starts
	broken.Recovery.MaxConsecutiveFailures, broken.Queue.Timeout = 1, spec.Duration(time.Second)
	crashing := pythonSpec("crashing", 6, "broken.py")
	crashing.Recovery.MaxConsecutiveFailures, crashing.Recovery.BackoffMax = 1000, spec.Duration(time.Second)
	placed := echoSpec("placed", 2)
	placed.Pool.Placement = "full" // which has room for one
	for _, s := range []spec.Spec{broken, crashing, placed} {
		require.NoError(t, env.client.StartPool(t.Context(), api.PoolStart{Pool: s.Pool.Name, Spec: s}))
	}
	changing.Pool.Command = []string{"python3", "broken.py"}
	_, err := changed.Apply(t.Context(), changing)
	require.NoError(t, err)
	env.restart(killed, api.RestartRequest{Reason: "by hand"})
	mustRequest(t, gateway, "POST", "/v1/pools/ill/call/fall_ill", "[]", "")

	// Problems that occur again and again.
	proven := append(slices.Clone(onlyFromSeries), "TempoolControlPlaneLost") // the latter at the end
	call := func(path, body string) func() { return func() { post(t, gateway, path, body) } }
	sessions, floods := 0, 0
	conditions := []condition{
		{alert: "TempoolAgentDown", about: "gone"},
		{alert: "TempoolAgentFull", about: "full"},
		{alert: "TempoolPoolDown", about: "broken"},
		{alert: "TempoolWorkerResting", about: "broken"},
		{alert: "TempoolPoolShort", about: "placed"},
		{alert: "TempoolWorkersKilled", about: "obstinate"},
		{alert: "TempoolRolloutHalted", about: "changing"},
		{alert: "TempoolStartsFail", about: "crashing"},
		{alert: "TempoolStartsHeld", about: "crashing"},
		{alert: "TempoolWorkerUnhealthy", about: "ill"},
		{alert: "TempoolProbesSlow", about: "slow"},
		{alert: "TempoolCallsRefused", about: "broken", again: call("/v1/pools/broken/call/echo", "1")},
		{alert: "TempoolCallsFail", about: "erring", again: call("/v1/pools/erring/call/fail", `["no"]`)},
		{alert: "TempoolWorkerRestarts", about: "dying", again: func() {
			state, err := restarted.State(t.Context(), 0)
			if err == nil && state.State == lifecycle.Ready && state.Incarnation > last {
				last = state.Incarnation
				killProcess(t, state.PID)
			}
		}},
		{alert: "TempoolQueueSlow", about: "busy", again: func() {
			switch {
			case waitsSince.IsZero():
				if readScrape(t, gateway).has(float64(cap(waited)-1), "tempool_pool_queue_length", "pool", "busy") {
					waitsSince = time.Now()
				}
			case time.Since(waitsSince) > 6*time.Second:
				require.NoError(t, os.WriteFile(release, nil, 0o600))
			}
		}},
		{alert: "TempoolHostRejoined", about: "again", again: func() {
			again.stop()
			again = start("again", "--labels", "again")
			waitForGateway(t, &http.Client{Transport: redirectTo(instances["again"])})
		}},
		{alert: "TempoolLogLinesDropped", about: "main", again: func() {
			if floods++; floods%20 == 1 {
				post(t, gateway, "/v1/pools/floods/call/flood", "[32]")
			}
		}},
		{alert: "TempoolSessionStoreFails", about: "redis", again: func() {
			request(t, gateway, "POST", "/v1/pools/kept/call/recall", `["k"]`, "mine")
		}},
		{alert: "TempoolSessionStoreFull", about: "memory", again: func() {
			sessions++
			request(t, gateway, "POST", "/v1/pools/small/call/remember", `["k", 1]`, fmt.Sprint("session-", sessions))
		}},
	}
	for _, c := range conditions {
		proven = append(proven, c.alert)
	}
	require.ElementsMatch(t, p.ruleNames(), proven, "each rule has its condition here")
	awaitAlerts(t, p, conditions)
	// a slow machine may have made the calls wait for long enough before
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	for range cap(waited) {
		require.NoError(t, <-waited)
	}

	// At last, Temporal itself.
	require.NoError(t, env.server.Kill())
	awaitAlerts(t, p, []condition{{alert: "TempoolControlPlaneLost", about: "main"},
		{alert: "TempoolControlPlaneLost", about: "full"}})
	require.NoError(t, env.server.Restart(context.Background()))
	require.Eventually(t, func() bool { return p.firing("TempoolControlPlaneLost", "main") == nil }, waitTimeout,
		100*time.Millisecond, "the alert ends with its condition")
}
