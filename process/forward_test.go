package process

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorder is a slog.Handler that counts the lines of output that were logged and those that were reported as dropped.
type recorder struct {
	mu              sync.Mutex
	logged, dropped int
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
		case "dropped_lines":
			r.dropped += int(a.Value.Int64())
		}
		return true
	})
	return nil
}

func TestOutputIsForwardedAtALimitedRateAndCounted(t *testing.T) {
	const lines = 50_000
	var log recorder
	s := open(t, func(c *Config) { c.Logger = slog.New(&log) })
	p := begin(t, s, sh("seq 50000; exec sleep 1000"))
	eventually(t, func() bool {
		stored := p.Logs()
		return len(stored) > 0 && stored[len(stored)-1].Text == "50000"
	}, "the last line is not stored")
	p.Kill("test")
	ends(t, p)
	log.mu.Lock()
	defer log.mu.Unlock()
	require.Equal(t, lines, log.logged+log.dropped)
	require.GreaterOrEqual(t, log.logged, forwardBurst)
	require.Greater(t, log.dropped, lines/2)
}
