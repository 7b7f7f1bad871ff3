package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
)

const (
	defaultCallers  = 8
	maxCallers      = 10_000
	defaultDuration = 10 * time.Second
	// failureBackoff keeps callers whose calls fail at once from doing nothing else.
	failureBackoff = 10 * time.Millisecond
	// maxBenchBody bounds the body that is read from standard input, in bytes: it is sent again and again.
	maxBenchBody = 64 << 20
)

// benchResult is the result of ctl bench.
type benchResult struct {
	Pool           string       `json:"pool"`
	Method         string       `json:"method"`
	Callers        int          `json:"callers"`
	DurationS      float64      `json:"duration_s"` // from the first call's begin to the last one's end
	Calls          int64        `json:"calls"`      // that were answered
	CallsPerSecond float64      `json:"calls_per_second"`
	Latency        latency      `json:"latency_ms"`
	Histogram      []bucket     `json:"histogram"`
	Failed         int64        `json:"failed"`
	Errors         []errorCount `json:"errors"`
}

// latency is of the calls that were answered, in milliseconds, within a hundredth of each.
type latency struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// bucket counts the calls that took at most UpToMS milliseconds and longer than the bar before says.
type bucket struct {
	UpToMS float64 `json:"up_to_ms"`
	Count  int64   `json:"count"`
}

// errorCount counts the calls that failed with one code, and gives the sentence of the first.
type errorCount struct {
	Code    api.Code `json:"code"`
	Count   int64    `json:"count"`
	Message string   `json:"message"`
}

// benchStats is what callers saw. It is safe for concurrent use.
type benchStats struct {
	mu       sync.Mutex
	times    *hdrhistogram.Histogram // microseconds
	failures map[api.Code]*errorCount
}

// maxTrackedLatency is what the histogram tells apart up to; longer calls count as that long.
const maxTrackedLatency = time.Hour

func newBenchStats() *benchStats {
	return &benchStats{times: hdrhistogram.New(1, maxTrackedLatency.Microseconds(), 2), failures: map[api.Code]*errorCount{}}
}

func (t *benchStats) record(took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		code, message := describe(err)
		if t.failures[code] == nil {
			t.failures[code] = &errorCount{Code: code, Message: message}
		}
		t.failures[code].Count++
		return
	}
	// A value within the histogram's range is always taken.
	_ = t.times.RecordValue(min(max(took, time.Microsecond), maxTrackedLatency).Microseconds())
}

// fill fills in what was counted in so much time.
func (t *benchStats) fill(m *benchResult, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ms := func(microseconds int64) float64 { return float64(microseconds) / 1000 }
	m.DurationS, m.Calls = took.Seconds(), t.times.TotalCount()
	if took > 0 {
		m.CallsPerSecond = float64(m.Calls) / took.Seconds()
	}
	m.Latency = latency{ms(t.times.Min()), t.times.Mean() / 1000, ms(t.times.ValueAtQuantile(50)), ms(t.times.ValueAtQuantile(90)),
		ms(t.times.ValueAtQuantile(99)), ms(t.times.Max())}
	m.Histogram = bucketsOf(t.times)
	m.Errors = []errorCount{}
	for _, f := range t.failures {
		m.Failed += f.Count
		m.Errors = append(m.Errors, *f)
	}
	slices.SortFunc(m.Errors, func(a, b errorCount) int { return int(b.Count - a.Count) })
}

// bucketsOf sorts times into bars that end at 1, 2 and 5 times powers of ten, from the first that has any to the last.
func bucketsOf(times *hdrhistogram.Histogram) []bucket {
	all := []bucket{}
	for _, bin := range times.Distribution() {
		if bin.Count == 0 {
			continue
		}
		end := roundUp(float64(bin.To) / 1000)
		for len(all) > 0 && all[len(all)-1].UpToMS < end {
			all = append(all, bucket{UpToMS: roundUp(all[len(all)-1].UpToMS * 1.5)})
		}
		if len(all) == 0 {
			all = append(all, bucket{UpToMS: end})
		}
		all[len(all)-1].Count += bin.Count
	}
	return all
}

// roundUp is the least of 1, 2 and 5 times a power of ten that is not below x.
func roundUp(x float64) float64 {
	exponent := math.Floor(math.Log10(x))
	for _, step := range []float64{1, 2, 5} {
		if end := scaled(step, int(exponent)); end >= x {
			return end
		}
	}
	return scaled(1, int(exponent)+1)
}

// scaled is step times a power of ten, as exact as a decimal is.
func scaled(step float64, exponent int) float64 {
	if exponent < 0 {
		return step / math.Pow10(-exponent)
	}
	return step * math.Pow10(exponent)
}

func (a *app) benchCommand() *cobra.Command {
	var to aim
	var callers int
	var duration time.Duration
	c := a.callingCommand(&cobra.Command{
		Use:   "bench POOL METHOD [BODY|-]",
		Short: "Measure how fast a pool answers a method",
		Long: `Call one method again and again, by so many callers at one time for so long, and print how long the calls took, how many were
answered in a second, and which failed. Each caller makes its next call when its last one is answered. One call goes ahead and is
not counted: if it fails, nothing is measured.

BODY is as for ctl call. The exit code is 1 if no call was answered.`,
		Example: `  ctl bench hello greet '{"name": "you"}'
  ctl bench hello status --callers 64 --duration 30s
  ctl bench hello status --gateway unix:/run/tempool/gateway.sock -o json | jq .latency_ms.p99`,
		Args: callArguments,
	}, &to, func(ctx context.Context, p pool, args []string) error {
		body, err := a.benchBody(args)
		if err != nil {
			return err
		}
		pool := p.Calls(to.options(a.timeout))
		call := func(ctx context.Context) error {
			_, err := pool.CallRaw(ctx, args[1], body)
			return err
		}
		if err := call(ctx); err != nil {
			return err
		}
		result := benchResult{Pool: args[0], Method: args[1], Callers: callers}
		t := newBenchStats()
		began := time.Now()
		runCallers(ctx, callers, duration, call, t)
		t.fill(&result, time.Since(began))
		if err := a.printResult(result, func(w io.Writer) error { return writeBenchResult(w, result) }); err != nil {
			return err
		}
		if result.Calls == 0 {
			return api.Errorf(api.CodeUnavailable, "no call was answered but the one that went ahead")
		}
		return nil
	})
	c.Flags().IntVar(&callers, "callers", defaultCallers, "how many calls are made at one time")
	c.Flags().DurationVar(&duration, "duration", defaultDuration, "how long calls are begun")
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case callers < 1 || callers > maxCallers:
			return usagef("--callers is %d; give a number from 1 to %d", callers, maxCallers)
		case duration <= 0:
			return usagef("--duration is %s; give a time above zero, such as 10s", duration)
		}
		return check(cmd, args)
	}
	return c
}

// benchBody is the body of every call.
func (a *app) benchBody(args []string) ([]byte, error) {
	if len(args) < 3 {
		return nil, nil
	}
	if args[2] != "-" {
		return []byte(args[2]), nil
	}
	body, err := io.ReadAll(io.LimitReader(a.in, maxBenchBody+1))
	switch {
	case err != nil:
		return nil, api.Errorf(api.CodeInvalid, "standard input cannot be read: %w", err)
	case len(body) > maxBenchBody:
		return nil, api.Errorf(api.CodePayloadTooLarge, "standard input is larger than %s", formatBytes(maxBenchBody))
	}
	return body, nil
}

// runCallers has so many callers make one call after the other; none begins after duration, and load returns when all have ended.
func runCallers(ctx context.Context, callers int, duration time.Duration, call func(context.Context) error, t *benchStats) {
	over, stop := context.WithTimeout(ctx, duration)
	defer stop()
	var working sync.WaitGroup
	for range callers {
		working.Go(func() {
			for over.Err() == nil {
				began := time.Now()
				err := call(ctx)
				if errors.Is(err, context.Canceled) { // ctl was interrupted
					return
				}
				t.record(time.Since(began), err)
				if err == nil {
					continue
				}
				select {
				case <-over.Done():
				case <-time.After(failureBackoff):
				}
			}
		})
	}
	working.Wait()
}

// barWidth is how wide the longest bar is drawn, in characters.
const barWidth = 40

// writeBenchResult is what ctl bench prints.
func writeBenchResult(w io.Writer, m benchResult) error {
	ms := func(value float64) string { return formatDuration(milliseconds(value)) }
	facts := [][]string{
		{"Callers", fmt.Sprint(m.Callers)},
		{"Time", formatDuration(seconds(m.DurationS))},
		{"Calls", fmt.Sprintf("%d, %.1f a second", m.Calls, m.CallsPerSecond)},
		{"Failed", fmt.Sprint(m.Failed)},
	}
	if m.Calls > 0 {
		facts = append(facts, []string{"p50", ms(m.Latency.P50)}, []string{"p90", ms(m.Latency.P90)}, []string{"p99", ms(m.Latency.P99)},
			[]string{"max", ms(m.Latency.Max)}, []string{"mean", ms(m.Latency.Mean)})
	}
	if err := table(w, []string{"Pool", m.Pool + " " + m.Method}, facts); err != nil {
		return err
	}
	var most int64
	for _, b := range m.Histogram {
		most = max(most, b.Count)
	}
	var rows [][]string
	for _, b := range m.Histogram {
		share := 100 * float64(b.Count) / float64(m.Calls)
		rows = append(rows, []string{ms(b.UpToMS), fmt.Sprint(b.Count), fmt.Sprintf("%.2f %%", share),
			strings.Repeat("#", int(math.Ceil(barWidth*float64(b.Count)/float64(most))))})
	}
	if len(rows) > 0 {
		fmt.Fprintln(w)
		if err := table(w, []string{"UP TO", "CALLS", "SHARE", ""}, rows); err != nil {
			return err
		}
	}
	if len(m.Errors) == 0 {
		return nil
	}
	rows = nil
	for _, f := range m.Errors {
		rows = append(rows, []string{string(f.Code), fmt.Sprint(f.Count), oneLine(f.Message, maxReasonRunes)})
	}
	fmt.Fprintln(w)
	return table(w, []string{"ERROR", "CALLS", "THE FIRST"}, rows)
}
