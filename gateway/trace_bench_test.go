package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/worker/traceexport"
)

// BenchmarkTracing measures what tracing costs a call: off, off again, which shows what is chance, with 1 % of the
// calls sampled, and with all. An operation is a round. In each round every variant has a fresh gateway and a fresh
// worker, since two processes of one program differ by more than tracing costs; the variants then take turns of
// turnCalls calls, in random order. x-% is how much more a call took than one of off in the same round, as the median
// of all rounds: of processor time, the worker's included (cpu), and of the median call (p50). The log has the interval
// that holds the true median with 95 % probability. Fewer than 20 rounds say little.
func BenchmarkTracing(b *testing.B) {
	b.Run("in-process", func(b *testing.B) {
		benchmarkTracing(b, func(e *env, body []byte) error {
			_, err := e.gateway.CallPool(context.Background(), "p", pool.Request{Method: "echo", Body: body})
			return err
		})
	})
	b.Run("socket", func(b *testing.B) {
		benchmarkTracing(b, (*env).postEcho)
	})
}

const turnCalls, turnsOfRound = 200, 10

// tracingVariant is one of the compared variants, with one value of each measure per round.
type tracingVariant struct {
	name             string
	share            string // of the calls that are sampled; "" without tracing
	cpu, p50, allocs []float64
}

func benchmarkTracing(b *testing.B, call func(*env, []byte) error) {
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_,
			_ = io.Copy(io.Discard, r.Body)
	}))
	b.Cleanup(collector.Close)
	b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	b.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	variants := []*tracingVariant{{name: "off"}, {name: "off-again"}, {name: "1-percent", share: "0.01"},
		{name: "all", share: "1"}}
	for b.Loop() {
		tracingRound(b, variants, call)
	}
	for _, measure := range []struct {
		name string
		of   func(*tracingVariant) []float64
	}{{"cpu", func(w *tracingVariant) []float64 { return w.cpu }},
		{"p50", func(w *tracingVariant) []float64 { return w.p50 }}} {
		for _, w := range variants {
			values := measure.of(w)
			more := make([]float64, len(values))
			for i, value := range values {
				more[i] = 100 * (value/measure.of(variants[0])[i] - 1)
			}
			low, middle, high := medianWithin(more)
			if w != variants[0] {
				b.ReportMetric(middle, w.name+"-"+measure.name+"-%")
				b.Logf("%-10s %s %+.2f %% (%+.2f to %+.2f)", w.name, measure.name, middle, low, high)
			}
		}
		_, middle, _ := medianWithin(measure.of(variants[0]))
		b.ReportMetric(middle, "off-"+measure.name+"-µs")
	}
	for _, w := range variants {
		_, middle, _ := medianWithin(w.allocs)
		b.ReportMetric(middle, w.name+"-allocs/call")
	}
}

// tracingRound adds one value to each measure of each variant.
func tracingRound(b *testing.B, variants []*tracingVariant, call func(*env, []byte) error) {
	ended := &roundEnd{TB: b}
	defer ended.end()
	envs := make([]*env, len(variants))
	workers := make([]int, len(variants))
	for _, i := range rand.Perm(len(variants)) { // which process starts first matters, too
		w := variants[i]
		var options []option
		if w.share != "" {
			b.Setenv("OTEL_TRACES_SAMPLER_ARG", w.share)
			provider := traceexport.FromEnvironment(b.Context(), "here", "bench", slog.Default())
			ended.Cleanup(func() { provider.Shutdown(context.Background()) })
			options = append(options, withConfig(func(c *Config) { c.Tracer = provider.Tracer() }))
		}
		envs[i] = open(ended, 1, options...)
		p, found := envs[i].processes.Get("p/0", 1)
		require.True(b, found)
		workers[i] = p.Info().PID
	}
	body := bytes.Repeat([]byte("x"), 100)
	cpu, took, allocs := make([]time.Duration, len(variants)), make([][]time.Duration, len(variants)), make([]uint64,
		len(variants))
	for turn := range turnsOfRound + 1 { // the first one warms up
		for _, i := range rand.Perm(len(variants)) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			used := processorTime(b) + workerTime(b, workers[i])
			times := make([]time.Duration, turnCalls)
			for n := range times {
				began := time.Now()
				if err := call(envs[i], body); err != nil {
					b.Fatal(err)
				}
				times[n] = time.Since(began)
			}
			used = processorTime(b) + workerTime(b, workers[i]) - used
			runtime.ReadMemStats(&after)
			if turn > 0 {
				cpu[i] += used
				allocs[i] += after.Mallocs - before.Mallocs
				took[i] = append(took[i], times...)
			}
		}
	}
	for i, w := range variants {
		slices.Sort(took[i])
		w.cpu = append(w.cpu, float64(cpu[i].Nanoseconds())/1000/turnCalls/turnsOfRound)
		w.p50 = append(w.p50, float64(took[i][len(took[i])/2].Nanoseconds())/1000)
		w.allocs = append(w.allocs, float64(allocs[i])/turnCalls/turnsOfRound)
	}
}

// roundEnd ends what a round has opened when the round ends.
type roundEnd struct {
	testing.TB
	ends []func()
}

func (r *roundEnd) Cleanup(end func()) { r.ends = append(r.ends, end) }

// Output drops the log, which would take the place of the results.
func (r *roundEnd) Output() io.Writer { return io.Discard }

func (r *roundEnd) end() {
	for _, end := range slices.Backward(r.ends) {
		end()
	}
}

// workerTime is the processor time of a worker with one thread; 0 where the kernel does not count it.
func workerTime(b *testing.B, pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0
	}
	var ran int64
	_, err = fmt.Sscan(string(text), &ran)
	require.NoError(b, err)
	return time.Duration(ran)
}

// medianWithin returns the median, and the interval that holds the true one with 95 % probability, by the binomial
// distribution of the ranks.
func medianWithin(values []float64) (low, middle, high float64) {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	rank, below, p := 0, 0.0, 1.0
	for range n {
		p /= 2
	}
	for rank < n/2 && below+p <= 0.025 {
		below += p
		p = p * float64(n-rank) / float64(rank+1)
		rank++
	}
	at := max(rank-1, 0)
	return sorted[at], (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[n-1-at]
}
