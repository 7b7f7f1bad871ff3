package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestBenchCountsAnswersAndFailures(t *testing.T) {
	var calls atomic.Int64
	endpoint := startGateway(t, "unix", func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"code":"worker_error","detail":"greet failed","started":true}`)
			return
		}
		_, _ = io.Copy(w, r.Body)
	})
	r := runCtl(t, "bench", "hello", "greet", "{}", "--gateway", endpoint, "--callers", "4", "--duration", "1s", "-o", "json")
	requireCode(t, ExitOK, r)
	var m benchResult
	require.NoError(t, json.Unmarshal([]byte(r.out), &m))
	require.Equal(t, 4, m.Callers)
	require.Equal(t, calls.Load()-1, m.Calls+m.Failed, "all but the one that goes ahead")
	require.Equal(t, []errorCount{{Code: api.CodeWorkerError, Count: m.Failed, Message: "greet failed"}}, m.Errors)
	require.Equal(t, calls.Load()/2, m.Failed)
	require.InDelta(t, float64(m.Calls)/m.DurationS, m.CallsPerSecond, 0.01)
	require.GreaterOrEqual(t, m.DurationS, 1.0)
	var sum int64
	for _, b := range m.Histogram {
		sum += b.Count
	}
	require.Equal(t, m.Calls, sum)
	l := m.Latency
	require.True(t, 0 < l.Min && l.Min <= l.P50 && l.P50 <= l.P90 && l.P90 <= l.P99 && l.P99 <= l.Max, "%+v", l)

	calls.Store(0)
	table := runCtl(t, "bench", "hello", "greet", "--gateway", endpoint, "--callers", "2", "--duration", "1s")
	requireCode(t, ExitOK, table)
	for _, line := range []string{"Callers", "per second", "p50", "p90", "p99", "max", "UP TO", "###", "worker_error"} {
		require.Contains(t, table.out, line)
	}
}

func TestBenchStopsIfTheFirstCallFails(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "hello", err: api.Errorf(api.CodePoolNotFound, "no pool hello is running")})
	r := ctl(t, f, "bench", "hello", "greet", "-o", "json")
	requireCode(t, ExitFailed, r)
	require.Equal(t, "pool_not_found", failure(t, r).Code)
	require.Equal(t, []string{"call hello greet"}, f.requests)
	require.Empty(t, r.out)
}

func TestBenchExitsWith1IfAllCallsFail(t *testing.T) {
	var calls atomic.Int64
	endpoint := startGateway(t, "tcp", func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) > 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"code":"queue_timeout","detail":"none came free","started":false}`)
		}
	})
	r := runCtl(t, "bench", "hello", "greet", "--gateway", endpoint, "--duration", "1s")
	requireCode(t, ExitFailed, r)
	require.Contains(t, r.out, "queue_timeout")
	require.Contains(t, r.err, "all calls failed")
}

func TestAnInterruptedBenchKeepsItsCounts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var made atomic.Int64
	counted := newBenchStats()
	runCallers(ctx, 3, time.Hour, func(ctx context.Context) error {
		if made.Add(1) == 30 {
			cancel()
		}
		return ctx.Err()
	}, counted)
	var m benchResult
	counted.fill(&m, time.Second)
	require.GreaterOrEqual(t, m.Calls, int64(27))
	require.Zero(t, m.Failed, "a call that was cut short is not a failure of the pool")
}

func TestLatenciesFallIntoRoundBuckets(t *testing.T) {
	for x, want := range map[float64]float64{0.001: 0.001, 0.0011: 0.002, 0.3: 0.5, 1: 1, 1.01: 2, 4.9: 5, 5.1: 10, 99: 100, 101: 200} {
		require.InDelta(t, want, roundUp(x), want*1e-9, "%v", x)
	}
	times := hdrhistogram.New(1, maxTrackedLatency.Microseconds(), 2)
	for _, microseconds := range []int64{900, 950, 1_500, 9_000} {
		require.NoError(t, times.RecordValue(microseconds))
	}
	got := bucketsOf(times)
	require.Equal(t, []bucket{{1, 2}, {2, 1}, {5, 0}, {10, 1}}, got)
	require.Empty(t, bucketsOf(hdrhistogram.New(1, 1000, 2)))
}

func TestLatenciesBeyondTheHistogramCountAsItsMaximum(t *testing.T) {
	counted := newBenchStats()
	counted.record(3*maxTrackedLatency, nil)
	counted.record(0, nil)
	counted.record(time.Second, errors.New("no code"))
	var m benchResult
	counted.fill(&m, time.Second)
	require.EqualValues(t, 2, m.Calls)
	require.EqualValues(t, 1, m.Failed)
	require.InDelta(t, maxTrackedLatency.Seconds()*1000, m.Latency.Max, 0.02*maxTrackedLatency.Seconds()*1000)
	require.True(t, strings.HasPrefix(string(m.Errors[0].Code), "unexpected"))
}
