package process

import (
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tempool/tempool/process/logs"
)

// Bounds on the output that one incarnation adds to the agent's log: on its lines, and on their text, of which a line
// has only the beginning there. The newest lines are stored in any case.
const (
	forwardRate       = 100 // lines a second
	forwardBurst      = 1000
	forwardBytesRate  = 16 << 10 // a second
	forwardBytesBurst = 256 << 10
	forwardLine       = 4 << 10 // bytes
	// dropReportEvery is the least time between two reports of dropped lines, except for the last.
	dropReportEvery = 5 * time.Second
)

// forwarder copies the output of one incarnation to the agent's log, and counts the lines that exceed the rate.
type forwarder struct {
	logger       *slog.Logger
	lines, bytes *rate.Limiter

	mu       sync.Mutex // guards the fields below; held while a line is logged, so that lines keep their order
	dropped  int        // since the last report
	reported time.Time  // when the last report was made
	closed   bool
}

func newForwarder(logger *slog.Logger, k key) *forwarder {
	return &forwarder{
		logger: logger.With("worker", k.worker, "incarnation", k.incarnation),
		lines:  rate.NewLimiter(forwardRate, forwardBurst), bytes: rate.NewLimiter(forwardBytesRate, forwardBytesBurst),
	}
}

func (f *forwarder) forward(line logs.Line) {
	text := truncate(line.Text, forwardLine)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || !f.lines.AllowN(line.At, 1) || !f.bytes.AllowN(line.At, len(text)) {
		f.dropped++
		return
	}
	if f.dropped > 0 && line.At.Sub(f.reported) >= dropReportEvery {
		f.reportDropped(line.At)
	}
	f.logger.Info(text, "stream", line.Stream)
}

// close reports what was dropped last. It does nothing the second time.
func (f *forwarder) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed && f.dropped > 0 {
		f.reportDropped(time.Now())
	}
	f.closed = true
}

func (f *forwarder) reportDropped(now time.Time) {
	f.logger.Warn("worker writes faster than its output is logged", "dropped_lines", f.dropped,
		"lines_per_second", forwardRate, "bytes_per_second", forwardBytesRate)
	f.dropped, f.reported = 0, now
}
