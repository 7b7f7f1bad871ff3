package dev

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/tempool/tempool/cmd/tempool/codemetrics"
	"github.com/tempool/tempool/internal/logging"
)

// screen writes to the user's terminal or log. It is safe for concurrent use.
type screen struct {
	mu  sync.Mutex
	out io.Writer
}

// line prints one line and ignores a failure to do so.
func (s *screen) line(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// progress shows the progress of a job: as a bar on a terminal, otherwise as a line for every 10 %. The returned
// functions must not be called concurrently.
func (s *screen) progress(total int) (show func(codemetrics.Summary, int), end func()) {
	if !logging.Terminal(s.out) {
		tenths := 0
		return func(sum codemetrics.Summary, total int) {
			if now := 10 * sum.Files / max(1, total); now > tenths {
				tenths = now
				s.line("%3d %%  %d of %d files", 10*now, sum.Files, total)
			}
		}, func() {}
	}
	bar := progressbar.NewOptions(total,
		progressbar.OptionSetWriter(s.out), progressbar.OptionSetDescription("Measuring"), progressbar.OptionShowCount(),
		progressbar.OptionShowIts(), progressbar.OptionSetItsString("files"), progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(50*time.Millisecond), progressbar.OptionSetRenderBlankState(true))
	return func(sum codemetrics.Summary, _ int) {
			if sum.Retried > 0 {
				bar.Describe(fmt.Sprintf("Measuring (%d calls retried)", sum.Retried))
			}
			_ = bar.Set(sum.Files) // a failure to draw does not matter
		}, func() {
			_ = bar.Exit()
			s.line("")
		}
}
