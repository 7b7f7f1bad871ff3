package process

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process/logs"
)

// recorder is a slog.Handler that counts the lines of output that were logged and those that were reported as dropped.
type recorder struct {
	mu              sync.Mutex
	logged, dropped int
	bytes           int // of the lines
}

func (*recorder) Enabled(context.Context, slog.Level) bool { return true }
func (r *recorder) WithAttrs([]slog.Attr) slog.Handler     { return r }
func (r *recorder) WithGroup(string) slog.Handler          { return r }
func (r *recorder) Handle(_ context.Context, record slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	record.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "stream":
			r.logged++
			r.bytes += len(record.Message)
		case "dropped_lines":
			r.dropped += int(a.Value.Int64())
		}
		return true
	})
	return nil
}

func TestOutputIsForwardedAtALimitedRateAndCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line           string
		lines, atLeast int
		atMostBytes    int
	}{
		"short lines": {line: "x", lines: 50_000, atLeast: forwardBurst, atMostBytes: 1 << 20},
		"long lines":  {line: strings.Repeat("x", maxLineBytes), lines: 2000, atLeast: 1, atMostBytes: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			var log recorder
			f := newForwarder(slog.New(&log), key{"p/0", 1})
			began := time.Now()
			for i := range c.lines { // of ten seconds
				f.forward(logs.Line{At: began.Add(time.Duration(i) * 10 * time.Second / time.Duration(c.lines)),
					Stream: logs.Stderr, Text: c.line})
			}
			f.close()
			require.Equal(t, c.lines, log.logged+log.dropped)
			require.GreaterOrEqual(t, log.logged, c.atLeast)
			require.Greater(t, log.dropped, c.lines/2)
			require.Less(t, log.bytes, c.atMostBytes)
		})
	}
}
