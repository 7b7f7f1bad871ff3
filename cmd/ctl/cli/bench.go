package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/command"
	"github.com/tempool/tempool/internal/sleep"
)

const (
	defaultCallers  = 8
	maxCallers      = 10_000
	defaultDuration = 10 * time.Second
	// failureBackoff is the pause of a caller after a failed call.
	failureBackoff = 10 * time.Millisecond
)

func (a *app) benchCommand() *cobra.Command {
	var flags callFlags
	var callers int
	var duration time.Duration
	c := &cobra.Command{
		Use:   "bench POOL METHOD [BODY|-]",
		Short: "Measure latency and throughput of a method",
		Long: `Call a method repeatedly with several concurrent callers and print latencies, calls per second and failures. Each caller starts its
next call when the last one returns. A first call runs before the measurement and is not counted; if it fails, ctl measures nothing.

BODY is as for ctl call. The exit code is 1 if all calls failed.`,
		Example: `  ctl bench hello greet '{"name": "you"}'
  ctl bench hello status --callers 64 --duration 30s
  ctl bench hello status --gateway unix:/run/tempool/gateway.sock -o json | jq .latency_ms.p99`,
		Args: callArguments(argPool),
	}
	rangeVar(c, &callers, "callers", defaultCallers, 1, maxCallers, "number of concurrent callers")
	c.Flags().DurationVar(&duration, "duration", defaultDuration, "how long callers start new calls")
	checkFlags(c, func(*cobra.Command) error {
		if duration <= 0 {
			return command.Usagef("--duration is %s; give a duration above zero, such as 10s", duration)
		}
		return nil
	})
	return a.callingCommand(c, &flags, func(ctx context.Context, p pool, args []string) error {
		body, err := a.benchBody(args)
		if err != nil {
			return err
		}
		pool := p.Calls(a.callOptions(flags))
		call := func(ctx context.Context) error {
			_, err := pool.CallRaw(ctx, args[1], body)
			return err
		}
		if err := call(ctx); err != nil {
			return err
		}
		result := benchResult{Pool: args[0], Method: args[1], Callers: callers}
		stats := newBenchStats()
		started := time.Now()
		runCallers(ctx, callers, duration, call, stats)
		stats.fill(&result, time.Since(started))
		if err := a.printResult(result, func(text *strings.Builder) { writeBenchResult(text, result) }); err != nil {
			return err
		}
		if result.Calls == 0 {
			return api.Errorf(api.CodeUnavailable, "all calls failed except the first, which is not counted")
		}
		return nil
	})
}

// maxBenchBody bounds the body that ctl bench reads from standard input, in bytes: it sends the body with every call.
const maxBenchBody = 64 << 20

// benchBody returns the body of every call of ctl bench.
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
		return nil, api.Errorf(api.CodeInvalid, "cannot read standard input: %w", err)
	case len(body) > maxBenchBody:
		return nil, api.Errorf(api.CodePayloadTooLarge, "standard input is larger than %s", formatBytes(maxBenchBody))
	}
	return body, nil
}

// runCallers runs callers that make one call after the other. None starts a call after duration. runCallers returns when all calls
// have returned.
func runCallers(ctx context.Context, callers int, duration time.Duration, call func(context.Context) error, stats *benchStats) {
	measuring, stop := context.WithTimeout(ctx, duration)
	defer stop()
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for measuring.Err() == nil {
				started := time.Now()
				err := call(ctx)
				if errors.Is(err, context.Canceled) { // ctl was interrupted
					return
				}
				stats.record(time.Since(started), err)
				if err != nil {
					sleep.For(measuring.Done(), failureBackoff)
				}
			}
		})
	}
	group.Wait()
}

// barWidth is the width of the longest bar of the histogram, in characters.
const barWidth = 40

// writeBenchResult writes the table of ctl bench.
func writeBenchResult(text *strings.Builder, r benchResult) {
	ms := func(value float64) string { return formatDuration(milliseconds(value)) }
	rows := [][]string{
		{"Callers", fmt.Sprint(r.Callers)},
		{"Time", formatDuration(seconds(r.DurationS))},
		{"Calls", fmt.Sprintf("%d, %.1f per second", r.Calls, r.CallsPerSecond)},
		{"Failed", fmt.Sprint(r.Failed)},
	}
	if r.Calls > 0 {
		rows = append(rows, []string{"p50", ms(r.Latency.P50)}, []string{"p90", ms(r.Latency.P90)}, []string{"p99", ms(r.Latency.P99)},
			[]string{"max", ms(r.Latency.Max)}, []string{"mean", ms(r.Latency.Mean)})
	}
	table(text, []string{"Pool", r.Pool + " " + r.Method}, rows)
	var most int64
	for _, b := range r.Histogram {
		most = max(most, b.Count)
	}
	if len(r.Histogram) > 0 {
		fmt.Fprintln(text)
		tableOf(text, []string{"UP TO", "CALLS", "SHARE", ""}, r.Histogram, func(b bucket) []string {
			return []string{ms(b.UpToMS), fmt.Sprint(b.Count), fmt.Sprintf("%.2f %%", 100*float64(b.Count)/float64(r.Calls)),
				strings.Repeat("#", int(math.Ceil(barWidth*float64(b.Count)/float64(most))))}
		})
	}
	if len(r.Errors) > 0 {
		fmt.Fprintln(text)
		tableOf(text, []string{"ERROR", "CALLS", "FIRST MESSAGE"}, r.Errors, func(e errorCount) []string {
			return []string{string(e.Code), fmt.Sprint(e.Count), oneLine(e.Message, maxReasonRunes)}
		})
	}
}
