package process

import (
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tempool/tempool/process/logs"
)

// Bounds on the lines of output that one incarnation adds to the agent's log. The newest lines are stored in any case.
const (
	forwardRate  = 100 // lines a second
	forwardBurst = 1000
	// dropReportEvery is the least time between two reports of dropped lines, except for the last.
	dropReportEvery = 5 * time.Second
)

// forwarder copies the output of one incarnation to the agent's log, and counts the lines that exceed the rate.
type forwarder struct {
	logger  *slog.Logger
	limiter *rate.Limiter

	mu       sync.Mutex // guards the fields below; held while a line is logged, so that lines keep their order
	dropped  int        // since the last report
	reported time.Time  // when the last report was made
	closed   bool
}

func newForwarder(logger *slog.Logger, k key) *forwarder {
	return &forwarder{
		logger: logger.With("worker", k.worker, "incarnation", k.incarnation), limiter: rate.NewLimiter(forwardRate, forwardBurst),
	}
}

func (f *forwarder) forward(line logs.Line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || !f.limiter.AllowN(line.At, 1) {
		f.dropped++
		return
	}
	if f.dropped > 0 && line.At.Sub(f.reported) >= dropReportEvery {
		f.reportDropped(line.At)
	}
	f.logger.Info(line.Text, "stream", line.Stream)
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
	f.logger.Warn("worker writes faster than its output is logged", "dropped_lines", f.dropped, "limit_per_second", forwardRate)
	f.dropped, f.reported = 0, now
}
