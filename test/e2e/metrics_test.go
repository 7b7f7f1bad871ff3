package e2e

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/lifecycle"
)

// scrape is the result of one GET /metrics.
type scrape struct {
	t        *testing.T
	families map[string]*dto.MetricFamily
}

// scrapeText returns the metrics of an agent as text. Like Prometheus it asks again if a machine is too busy for an
// answer within a scrape's ten seconds.
func scrapeText(t *testing.T, c *http.Client) string {
	t.Helper()
	for deadline := time.Now().Add(waitTimeout); ; {
		status, text := request(t, c, http.MethodGet, "/metrics", "", "")
		if status != http.StatusServiceUnavailable || time.Now().After(deadline) {
			require.Equal(t, http.StatusOK, status, "%s", text)
			return text
		}
		t.Logf("a scrape failed: %s", text)
		sleep(t, time.Second)
	}
}

func readScrape(t *testing.T, c *http.Client) scrape {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(scrapeText(t, c)))
	require.NoError(t, err)
	return scrape{t, families}
}

// series returns the series of a metric that have these labels, given as name, value, name, value….
func (s scrape) series(name string, labels ...string) []*dto.Metric {
	var found []*dto.Metric
	for _, m := range s.families[name].GetMetric() {
		have := map[string]string{}
		for _, label := range m.GetLabel() {
			have[label.GetName()] = label.GetValue()
		}
		fits := true
		for i := 0; i < len(labels); i += 2 {
			fits = fits && have[labels[i]] == labels[i+1]
		}
		if fits {
			found = append(found, m)
		}
	}
	return found
}

// value returns the value of the only gauge or counter with these labels.
func (s scrape) value(name string, labels ...string) float64 {
	s.t.Helper()
	found := s.series(name, labels...)
	require.Len(s.t, found, 1, "%s %v", name, labels)
	return found[0].GetGauge().GetValue() + found[0].GetCounter().GetValue()
}

// has reports whether there is one gauge or counter with these labels, and it has the value.
func (s scrape) has(value float64, name string, labels ...string) bool {
	found := s.series(name, labels...)
	return len(found) == 1 && found[0].GetGauge().GetValue()+found[0].GetCounter().GetValue() == value
}

func TestMetricsDescribeAnAgentAndItsWorkers(t *testing.T) {
	env := oneHost(t, "seen", "--capacity", "7")
	began := time.Now().Unix()
	pool := env.startPool(echoSpec("seen", 2))
	client := env.gatewayClient("seen")
	for range 5 {
		mustRequest(t, client, "POST", "/v1/pools/seen/call/echo", `1`, "")
	}
	status, answer, _ := post(t, client, "/v1/pools/seen/call/paid", `3`)
	require.Equal(t, http.StatusOK, status, answer)
	status, _, code := post(t, client, "/v1/pools/seen/call/nothing", `1`)
	require.Equal(t, http.StatusNotFound, status)
	require.EqualValues(t, api.CodeMethodNotFound, code)
	lease := decode[api.Lease](t, mustRequest(t, client, "POST", "/v1/pools/seen/leases",
		`{"holder":"me","wait_ms":300000}`, ""))
	mustRequest(t, client, "DELETE", "/v1/leases/"+lease.ID+"~"+lease.Token, "", "")

	var s scrape
	// the roster learns of a process a moment after the process is ready, and samples and checks take turns
	require.Eventually(t, func() bool {
		s = readScrape(t, client)
		durations := s.series("tempool_pool_call_duration_seconds", "pool", "seen") // a call is counted after its answer
		return s.has(2, "tempool_pool_ready", "pool", "seen") && s.has(1, "tempool_control_plane_up") &&
			len(s.series("tempool_worker_memory_bytes", "pool", "seen")) == 2 &&
			len(durations) == 1 && durations[0].GetHistogram().GetSampleCount() == 7
	}, waitTimeout, 100*time.Millisecond)
	require.EqualValues(t, 1, s.value("tempool_agent_info", "host", "seen"))
	require.EqualValues(t, 1, s.value("tempool_build_info"))
	require.EqualValues(t, 7, s.value("tempool_agent_capacity"))
	require.EqualValues(t, 2, s.value("tempool_agent_processes"))
	require.EqualValues(t, 1, s.value("tempool_agent_epoch"))
	require.Zero(t, s.value("tempool_log_lines_dropped_total"))
	require.Zero(t, s.value("tempool_gateway_fenced"))
	require.Positive(t, s.value("tempool_gateway_connections", "listener", "unix"))
	require.EqualValues(t, 2, s.value("tempool_pool_size", "pool", "seen"))
	require.EqualValues(t, 2, s.value("tempool_pool_workers", "pool", "seen", "state", "ready"))
	require.Zero(t, s.value("tempool_pool_queue_length", "pool", "seen"))
	require.EqualValues(t, 2, s.series("tempool_pool_start_duration_seconds", "pool",
		"seen")[0].GetHistogram().GetSampleCount())
	var requests, failed, granted float64
	started := env.waitReady(pool, 2).Workers
	for slot, worker := range []string{"seen/0", "seen/1"} {
		requests += s.value("tempool_worker_requests_total", "worker", worker)
		failed += s.value("tempool_worker_requests_failed_total", "worker", worker)
		granted += s.value("tempool_worker_leases_granted_total", "worker", worker)
		require.EqualValues(t, 1, s.value("tempool_worker_healthy", "worker", worker))
		require.EqualValues(t, started[slot].Incarnation, s.value("tempool_worker_incarnation", "worker", worker))
		require.Greater(t, s.value("tempool_worker_memory_bytes", "worker", worker), 1e6)
		require.Greater(t, s.value("tempool_worker_score", "worker", worker), 50.0)
		require.Positive(t, s.value("tempool_worker_threads", "worker", worker))
		startedAt := s.value("tempool_worker_start_time_seconds", "worker", worker)
		require.True(t, float64(began) <= startedAt && startedAt <= float64(time.Now().Unix()+1), startedAt)
		is := 0.0
		for _, state := range s.series("tempool_worker_state", "worker", worker) {
			is += state.GetGauge().GetValue()
		}
		require.EqualValues(t, 1, is, "a worker is in exactly one state")
	}
	require.EqualValues(t, 7, requests)
	require.EqualValues(t, 3, s.value("tempool_worker_counted_total", "counter", "api_calls"))
	require.EqualValues(t, 1, failed)
	require.EqualValues(t, 1, granted)
	require.NotEmpty(t, s.series("temporal_request_total", "operation", "RespondWorkflowTaskCompleted"),
		"metrics of the Temporal SDK")
	require.NotEmpty(t, s.series("temporal_activity_execution_latency_seconds", "activity_type", "Start"))
	require.NotEmpty(t, s.series("go_goroutines"))

	env.waitFor(pool, "a rate of calls is reported", func(v api.PoolWorkers) bool {
		post(t, client, "/v1/pools/seen/call/paid", `1`) // the rate is that of the last minute
		return v.Workers[0].CallsPerMinute+v.Workers[1].CallsPerMinute > 0
	})

	require.Zero(t, s.value("tempool_worker_restarts_total", "worker", "seen/0", "reason", "exit"))
	killProcess(t, env.waitReady(pool, 2).Workers[0].PID)
	env.restart(pool, api.RestartRequest{Worker: new(1), Reason: "test"})
	env.waitNext(pool, started)
	require.Eventually(t, func() bool {
		s = readScrape(t, client)
		return s.has(1, "tempool_worker_restarts_total", "worker", "seen/0", "reason", "exit") &&
			s.has(1, "tempool_worker_rotations_total", "worker", "seen/1", "reason", "operator") &&
			s.has(1, "tempool_pool_processes_ended_total", "pool", "seen", "outcome", "failed")
	}, waitTimeout, 100*time.Millisecond, "restarts and rotations are counted by reason, and ends by outcome")
	require.NotEmpty(t, s.series("tempool_pool_transitions_total", "pool", "seen", "to", "failed"))
	require.GreaterOrEqual(t, s.value("tempool_pool_transitions_total", "pool", "seen", "from", "starting", "to", "ready"),
		3.0)
	require.Positive(t, s.value("tempool_pool_transition_seconds_total", "pool", "seen", "from", "starting", "to",
		"ready"))

	env.signal(pool, 0, api.SignalSuspend, "")
	env.waitState(pool, 0, lifecycle.Suspended)
	require.Eventually(t, func() bool {
		return readScrape(t, client).has(1, "tempool_worker_state", "worker", "seen/0", "state", "suspended")
	}, waitTimeout, 100*time.Millisecond)
	for range 10 {
		response, answer, err := send(t.Context(), client, "POST", "/v1/pools/seen/call/echo", `1`)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode, answer)
		require.Equal(t, "seen/1", response.Header.Get("Tempool-Worker"), "the suspended worker gets no call")
	}

	t.Run("promtool accepts them", func(t *testing.T) {
		need.Program(t, "promtool")
		cmd := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
		cmd.Stdin = strings.NewReader(scrapeText(t, client))
		outputOf(t, cmd)
	})
	for name := range s.families {
		for _, m := range s.series(name) {
			for _, label := range m.GetLabel() {
				require.NotContains(t, []string{"session", "lease", "method", "holder"}, label.GetName(), name)
			}
		}
	}
	scales(1)(env, pool)
	require.Eventually(t, func() bool {
		return len(readScrape(t, client).series("tempool_worker_state", "worker", "seen/0")) == 0
	}, waitTimeout, 100*time.Millisecond, "the series of a stopped worker are removed; the suspended one goes first")
	env.stopPool(pool)
	require.Eventually(t, func() bool {
		return len(readScrape(t, client).series("tempool_pool_size")) == 0
	}, waitTimeout, 100*time.Millisecond, "the series of a stopped pool are removed")
}
