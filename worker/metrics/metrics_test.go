package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/sessions"
)

func TestTheStateOfAWorkerFollowsFromItsProcess(t *testing.T) {
	for state, f := range map[lifecycle.State]processFacts{
		lifecycle.Starting:  {leased: true},
		lifecycle.Ready:     {ready: true},
		lifecycle.Busy:      {ready: true, leased: true},
		lifecycle.Degraded:  {ready: true, degraded: true, leased: true},
		lifecycle.Suspended: {ready: true, suspended: true},
		lifecycle.Draining:  {ready: true, draining: true, leased: true},
		lifecycle.Stopping:  {ready: true, stopping: true, draining: true},
	} {
		require.Equal(t, state, workerStateOf(f), "%+v", f)
	}
}

func incarnation(n int64) api.Process { return api.Process{Worker: "p/0", Incarnation: n} }

func noProcess() map[string]workerUsage { return nil }

func TestAnOlderIncarnationDoesNotChangeItsWorker(t *testing.T) {
	l := newWorkerStats("web-1", nil, noProcess)
	l.Started(incarnation(2), process.Info{}, time.Second)
	l.Watching(api.WatchRequest{Process: incarnation(2), Probe: true, Failures: 1})
	require.True(t, l.workers["p/0"].degraded)
	l.Watching(api.WatchRequest{Process: incarnation(1), Probe: false})
	require.True(t, l.workers["p/0"].degraded)
	require.False(t, l.workers["p/0"].suspended)
	l.Started(incarnation(3), process.Info{}, time.Second)
	require.False(t, l.workers["p/0"].degraded, "a new process is not degraded")
	l.Probed(incarnation(3), time.Second, errors.New("no answer"))
	require.True(t, l.workers["p/0"].unhealthy)
	require.EqualValues(t, 1, counterValue(t, l.probeFailures.WithLabelValues("p")))
	l.Probed(incarnation(3), 0, nil)
	require.False(t, l.workers["p/0"].unhealthy)
	var probes dto.Metric
	require.NoError(t, l.probeDuration.WithLabelValues("p").(prometheus.Metric).Write(&probes))
	require.EqualValues(t, 1, probes.GetHistogram().GetSampleCount(), "a report of the program is not a probe")
}

func TestWorkersAndPoolsWithoutAProcessAreRemoved(t *testing.T) {
	l := newWorkerStats("web-1", nil, noProcess)
	l.Started(incarnation(1), process.Info{}, time.Second)
	l.StartFailed(api.Process{Worker: "q/0", Incarnation: 1}, errors.New("exited with code 3"))
	now := time.Now()
	l.sweepLocked(map[string]workerUsage{"p/0": {}}, now.Add(statsRetention))
	require.Contains(t, l.workers, "p/0")
	require.NotContains(t, l.pools, "q", "its only start failed")
	l.sweepLocked(nil, now.Add(statsRetention))
	l.sweepLocked(nil, now.Add(2*statsRetention-1))
	require.Contains(t, l.workers, "p/0")
	l.sweepLocked(nil, now.Add(2*statsRetention))
	require.Empty(t, l.workers)
	require.Empty(t, l.pools)
	for _, v := range l.vectors() {
		require.Empty(t, gather(t, v), "no series is left")
	}
}

func TestAPoolIsQueriedOnceForManyScrapesAndRemovedWhenItHasEnded(t *testing.T) {
	queries, ended := map[string]int{}, false
	r := newPoolStatuses(func(_ context.Context, pool string) (api.PoolStatus, error) {
		queries[pool]++
		if ended {
			return api.PoolStatus{}, api.Errorf(api.CodePoolNotFound, "no pool %s is running", pool)
		}
		return api.PoolStatus{Pool: pool, Size: 3}, nil
	})
	require.Empty(t, r.read([]string{"p"}, false), "no query while Temporal is unreachable")
	require.Equal(t, 3, r.read([]string{"p"}, true)["p"].Size)
	require.Equal(t, 3, r.read([]string{"p"}, true)["p"].Size)
	require.Equal(t, 1, queries["p"])
	age := func() {
		r.known["p"] = answer[api.PoolStatus]{value: r.known["p"].value, at: time.Now().Add(-answerTTL)}
	}
	age()
	require.Contains(t, r.read(nil, true), "p", "a pool stays known without a worker here")
	require.Equal(t, 2, queries["p"])
	age()
	ended = true
	require.Empty(t, r.read(nil, true))
	require.Empty(t, r.read(nil, true))
	require.Equal(t, 3, queries["p"])
}

func TestOnlyAWorkerWhoseFailureIsInSightHasATimeToFailure(t *testing.T) {
	sent := func(a *api.Assessment) map[string]float64 {
		values := map[string]float64{}
		for name, family := range gather(t, prometheus.CollectorFunc(func(out chan<- prometheus.Metric) {
			sink{out}.assessment(a, "p", "p/0")
		})) {
			values[name] = family.GetMetric()[0].GetGauge().GetValue()
		}
		return values
	}
	require.Equal(t, map[string]float64{"tempool_worker_score": 100}, sent(nil))
	require.Equal(t, map[string]float64{"tempool_worker_score": 60},
		sent(&api.Assessment{Score: 60, Watch: "Score only 60, but not falling."}))
	require.Equal(t, map[string]float64{"tempool_worker_score": 60, "tempool_worker_time_to_failure_seconds": 7.5},
		sent(&api.Assessment{Score: 60, FailsInMS: 7500}))
}

func TestAnAnswerThatIsLateIsInALaterScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPoolStatuses(func(ctx context.Context, pool string) (api.PoolStatus, error) {
			sleep.For(ctx.Done(), 900*time.Millisecond)
			return api.PoolStatus{Pool: pool}, ctx.Err()
		})
		var pools []string
		for i := range 5 * askedAtOnce {
			pools = append(pools, fmt.Sprint("p", i))
		}
		began := time.Now()
		var answered []int
		for range 3 {
			answered = append(answered, len(r.read(pools, true))/askedAtOnce)
		}
		require.Equal(t, []int{2, 4, 5}, answered)
		require.Equal(t, 5*900*time.Millisecond, time.Since(began), "a scrape waits for all answers, but 2 s at most")
	})
}

func TestAScrapeAsksForEverythingAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		c := collector{config: testConfig(), stats: newWorkerStats("web-1", nil, noProcess),
			pools: newPoolStatuses(func(ctx context.Context, _ string) (api.PoolStatus, error) {
				return api.PoolStatus{}, hangs(ctx)
			}),
			lengths: newHistoryLengths(func(ctx context.Context, _ string) (int64, error) { return 0, hangs(ctx) }),
			live:    newLiveSessions(func(ctx context.Context) map[string]int { _ = hangs(ctx); return nil })}
		began := time.Now()
		gather(t, &c)
		require.Equal(t, statusTimeout, time.Since(began))
		sleep.For(t.Context().Done(), questionsTimeout) // until they have ended
	})
}

func TestAnOldAnswerIsDropped(t *testing.T) {
	r := newPoolStatuses(func(context.Context, string) (api.PoolStatus, error) {
		return api.PoolStatus{}, errors.New("no answer")
	})
	r.known = map[string]answer[api.PoolStatus]{"p": {at: time.Now().Add(-statusMaxAge / 2)}}
	require.Contains(t, r.read(nil, true), "p")
	require.Contains(t, r.read(nil, false), "p", "Temporal is unreachable")
	r.known = map[string]answer[api.PoolStatus]{"p": {at: time.Now().Add(-statusMaxAge)}}
	require.NotContains(t, r.read(nil, true), "p")
}

func counterValue(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	require.NoError(t, c.Write(&m))
	return m.GetCounter().GetValue()
}

// gather collects c through a registry.
func gather(t *testing.T, all ...prometheus.Collector) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(all...)
	families, err := registry.Gather()
	require.NoError(t, err)
	found := map[string]*dto.MetricFamily{}
	for _, f := range families {
		found[f.GetName()] = f
	}
	return found
}

func TestTheMetricsOfTheSDKFollowPrometheusConventions(t *testing.T) {
	sdk := NewSDK()
	handler := sdk.Handler().WithTags(map[string]string{"namespace": "default"})
	for _, pool := range []string{"a", "b"} {
		handler.WithTags(map[string]string{"task_queue": api.PoolQueue(pool)}).Counter("temporal_polls").Inc(2)
	}
	handler.Gauge("temporal_slots").Update(4)
	handler.Gauge("temporal_slots").Update(3)
	handler.WithTags(map[string]string{"operation": "A",
		"namespace": "other"}).Timer("temporal_request_latency").Record(2 * time.Second)
	handler.Timer("temporal_request_latency").Record(time.Second)

	found := gather(t, sdk)
	polls := found["temporal_polls_total"].GetMetric()
	require.Len(t, polls, 1, "all pools share a series")
	require.EqualValues(t, 4, polls[0].GetCounter().GetValue())
	require.EqualValues(t, 3, found["temporal_slots"].GetMetric()[0].GetGauge().GetValue())
	times := found["temporal_request_latency_seconds"].GetMetric()
	require.Len(t, times, 2)
	require.Equal(t, 3.0, times[0].GetHistogram().GetSampleSum()+times[1].GetHistogram().GetSampleSum())
}

func TestTheSeriesOfTheSDKAreBounded(t *testing.T) {
	sdk := NewSDK()
	for i := range maxSeries + 10 {
		sdk.Handler().WithTags(map[string]string{"operation": fmt.Sprint(i)}).Counter("temporal_request").Inc(1)
	}
	require.Len(t, sdk.series, maxSeries)
	require.EqualValues(t, 10, sdk.dropped.Load())
}

// idleGateway is a gateway with one pool and one worker.
type idleGateway struct{}

func (idleGateway) Snapshot() gateway.Snapshot {
	return gateway.Snapshot{Snapshot: pool.Snapshot{Health: pool.Health{ControlPlane: true},
		Pools: []pool.PoolSnapshot{{
			Pool: "p", NotReleased: 2, Hits: 1, Misses: 1, Bindings: 1, Refused: map[api.Code]int64{api.CodeQueueFull: 1},
			Calls: prometheus.MustNewMetricWithExemplars(
				prometheus.MustNewConstHistogram(callSeconds.desc, 3, 3, map[float64]uint64{0.1: 1, 1: 2}, "p"),
				prometheus.Exemplar{Value: 0.5, Timestamp: time.Unix(1, 0),
					Labels: prometheus.Labels{"trace_id": "0af7651916cd43dd8448eb211c80319c"}},
				prometheus.Exemplar{Value: 2, Timestamp: time.Unix(2, 0),
					Labels: prometheus.Labels{"trace_id": "1af7651916cd43dd8448eb211c80319c"}}),
			Waits:   prometheus.MustNewConstHistogram(queueSeconds.desc, 0, 0, nil, "p"),
			Workers: []pool.WorkerSnapshot{{Worker: "p/0", Usage: api.Usage{Requests: 1}}},
		}}}, Connections: map[string]int64{"unix": 1}}
}

// noProcesses is a host without processes.
type noProcesses struct{}

func (noProcesses) List() []*process.Process { return nil }
func (noProcesses) Live() int                { return 0 }
func (noProcesses) AbandonedFunctions() int  { return 0 }

// testConfig is that of an agent without tracing, whose pool has one worker.
func testConfig() Config {
	return Config{HostID: "here", Gateway: idleGateway{}, Processes: noProcesses{},
		SDK: NewSDK(), Logger: slog.New(slog.DiscardHandler),
		Status:   func(context.Context, string) (api.PoolStatus, error) { return api.PoolStatus{Size: 1}, nil },
		Sessions: NewSessionStats(), LiveSessions: func(context.Context) map[string]int { return nil },
		Epoch: func() int64 { return 3 }, LogLinesDropped: func() int64 { return 0 }, Transitions: NewTransitions(),
		HistoryLength: func(context.Context, string) (int64, error) { return 42, nil },
		Webhook:       func() events.Delivery { return events.Delivery{} },
	}
}

// documented returns the rows of the tables in the operations manual: name, kind, unit and labels.
func documented(t *testing.T) map[string]string {
	t.Helper()
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(tempool_[a-z_]+)` \\| ([a-z]+) \\| ([a-z–]+) \\| ([^|]*) \\| "+
		"[^|]+ \\|$").FindAllStringSubmatch(manual(t), -1) {
		require.NotContains(t, rows, row[1], "two rows")
		rows[row[1]] = row[2] + " of " + row[3] + " by " + row[4]
	}
	return rows
}

// unitOf returns the unit that a metric's name ends with.
func unitOf(name string) string {
	words := strings.Split(strings.TrimSuffix(name, "_total"), "_")
	switch last := words[len(words)-1]; last {
	case "seconds", "bytes", "cores":
		return last
	}
	return "–"
}

func TestTheManualListsExactlyTheMetrics(t *testing.T) {
	registered := map[string]string{}
	for _, m := range catalogue {
		labels := make([]string, len(m.Labels))
		for i, label := range m.Labels {
			labels[i] = "`" + label + "`"
		}
		text := strings.Join(labels, ", ")
		if text == "" {
			text = "–"
		}
		registered[m.Name] = string(m.Kind) + " of " + unitOf(m.Name) + " by " + text
	}
	require.Equal(t, registered, documented(t))
}

func TestEveryScrapedMetricIsInTheCatalogue(t *testing.T) {
	known := map[string]bool{}
	for _, m := range catalogue {
		known[m.Name] = true
	}
	counted := NewSessionStats()
	counted.Opened("embedded")
	counted.Used("embedded", "create", time.Second, api.Errorf(api.CodeStoreFull, "the store is full"))
	counted.Used("embedded", "get", time.Second, api.Errorf(api.CodeSessionNotFound, "no such session"))
	counted.Created("embedded")
	counted.Removed("embedded", sessions.Expired, 3)
	counted.Moved(true)
	c := testConfig()
	c.Sessions = counted
	c.Status = func(context.Context, string) (api.PoolStatus, error) {
		return api.PoolStatus{Size: 2, Ready: 1, Stopping: true}, nil
	}
	c.LiveSessions = func(context.Context) map[string]int { return map[string]int{"embedded": 4} }
	c.LogLinesDropped = func() int64 { return 5 }
	c.Webhook = func() events.Delivery { return events.Delivery{Delivered: 3, Failed: 2, Missed: 1} }
	c.Spans = func() (int64, int64) { return 5, 4 }
	m := New(c)
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, answer.Code)
	seen := 0
	for _, row := range regexp.MustCompile("(?m)^# TYPE (tempool_[a-z_]+) ").FindAllStringSubmatch(answer.Body.String(),
		-1) {
		require.True(t, known[row[1]], row[1])
		seen++
	}
	require.Positive(t, seen)
	for _, line := range []string{
		`tempool_pool_size{pool="p"} 0`, `tempool_pool_ready{pool="p"} 1`,
		`tempool_session_release_failures_total{pool="p"} 2`,
		`tempool_session_affinity_lookups_total{pool="p",result="hit"} 1`,
		`tempool_session_affinity_lookups_total{pool="p",result="miss"} 1`,
		`tempool_session_affinity_bindings{pool="p"} 1`, `tempool_session_store_live{store="embedded"} 4`,
		`tempool_session_store_created_total{store="embedded"} 1`,
		`tempool_session_store_removed_total{reason="expired",store="embedded"} 3`,
		`tempool_session_store_removed_total{reason="evicted",store="embedded"} 0`,
		`tempool_session_operation_failures_total{code="store_full",store="embedded"} 1`,
		`tempool_session_operation_failures_total{code="store_unavailable",store="embedded"} 0`,
		`tempool_session_operation_duration_seconds_count{operation="get",store="embedded"} 1`,
		`tempool_session_migrations_total{result="moved"} 1`, `tempool_session_migrations_total{result="superseded"} 0`,
		`tempool_agent_epoch 3`, `tempool_log_lines_dropped_total 5`, `tempool_events_posted_total 3`,
		`tempool_event_posts_failed_total 2`,
		`tempool_events_missed_total{reader="webhook"} 1`, `tempool_events_missed_total{reader="stream"} 0`,
		`tempool_trace_spans_exported_total 5`, `tempool_trace_spans_dropped_total 4`,
	} {
		require.Contains(t, answer.Body.String(), line+"\n")
	}
}

func TestTracedCallsAreExemplars(t *testing.T) {
	config := testConfig()
	scrape := func() string {
		request, answer := httptest.NewRequest("GET", "/metrics", nil), httptest.NewRecorder()
		request.Header.Set("Accept", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
		New(config).Handler().ServeHTTP(answer, request)
		require.Equal(t, 200, answer.Code)
		return answer.Body.String()
	}
	require.NotContains(t, scrape(), "trace_id", "without tracing")
	config.SDK, config.Spans = NewSDK(), func() (int64, int64) { return 0, 0 }
	text := scrape()
	require.Contains(
		t, text, `tempool_pool_call_duration_seconds_bucket{pool="p",le="1.0"} 2 # `+
			`{trace_id="0af7651916cd43dd8448eb211c80319c"} 0.5 1.0`)
	require.Contains(
		t, text, `tempool_pool_call_duration_seconds_bucket{pool="p",le="+Inf"} 3 # `+
			`{trace_id="1af7651916cd43dd8448eb211c80319c"} 2.0 2.0`)
	for _, row := range regexp.MustCompile(`(?m)^# TYPE (tempool_\w+) counter`).FindAllStringSubmatch(text, -1) {
		require.Contains(t, text, "\n"+row[1]+"_total", "a counter has the same name in both formats")
	}
}
