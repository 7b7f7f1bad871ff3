package dev

import (
	"fmt"
	"io"
	"strings"
	"sync"

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

// progress shows the progress of a job: as a bar on a terminal, otherwise as a line for every 10 %.
func (s *screen) progress(total int) func(codemetrics.Summary) {
	tenths, terminal := 0, logging.Terminal(s.out)
	return func(sum codemetrics.Summary) {
		now := 10 * sum.Files / max(1, total)
		if terminal {
			s.mu.Lock()
			defer s.mu.Unlock()
			fmt.Fprintf(s.out, "\r%-30s %d of %d files, %d calls retried", strings.Repeat("█", 3*now), sum.Files, total,
				sum.Retried)
		} else if now > tenths {
			s.line("%3d %%  %d of %d files", 10*now, sum.Files, total)
		}
		tenths = now
	}
}
