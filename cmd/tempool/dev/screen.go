package dev

import (
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/tempool/tempool/cmd/tempool/codemetrics"
	"github.com/tempool/tempool/internal/logging"
)

// screen writes to the user's terminal or log. It is safe for concurrent use.
type screen struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
}

func newScreen(out io.Writer) *screen {
	return &screen{out: out, terminal: logging.Terminal(out)}
}

// line prints one line and ignores a failure to do so.
func (s *screen) line(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// progress shows the progress of a job: as a bar on a terminal, otherwise as a line for every 10 %. The returned
// functions must not be called concurrently.
func (s *screen) progress(total int) (show func(codemetrics.Progress), end func()) {
	if s.terminal {
		bar := progressbar.NewOptions(total,
			progressbar.OptionSetWriter(s.out), progressbar.OptionSetDescription("Measuring"), progressbar.OptionShowCount(),
			progressbar.OptionShowIts(), progressbar.OptionSetItsString("files"), progressbar.OptionSetWidth(30),
			progressbar.OptionThrottle(50*time.Millisecond), progressbar.OptionSetRenderBlankState(true))
		show = func(p codemetrics.Progress) {
			if p.Retried > 0 {
				bar.Describe(fmt.Sprintf("Measuring (%d calls retried)", p.Retried))
			}
			_ = bar.Set(p.Files) // a failure to draw does not matter
		}
		return show, func() {
			_ = bar.Exit()
			s.line("")
		}
	}
	tenths := 0
	return func(p codemetrics.Progress) {
		if now := 10 * p.Files / max(1, p.Total); now > tenths {
			tenths = now
			s.line("%3d %%  %d of %d files", 10*now, p.Files, p.Total)
		}
	}, func() {}
}

// grouped formats a number with thousands separators: 1,234,567.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

func rounded(d time.Duration) time.Duration {
	if d > 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(10 * time.Millisecond)
}
