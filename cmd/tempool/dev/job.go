package dev

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/cmd/tempool/codemetrics"
	"github.com/tempool/tempool/worker"
)

// workersTimeout bounds the query of the workers before and after the job.
const workersTimeout = 20 * time.Second

// runJob runs the job on the pool and prints its result.
func (s *starter) runJob(ctx context.Context) error {
	pool := s.client.Pool(s.spec.Pool.Name)
	s.screen.line("\nMeasuring the standard library of Python %s, %d files in %s.", s.library.Version,
		len(s.library.Files), s.library.Folder)
	before := restarts(ctx, pool)
	// Over the gateway's own Unix socket, tempool dev needs neither a token nor a certificate.
	options := s.temporal
	options.Gateways = []string{"unix:" + filepath.Join(s.data.agentState(), worker.SocketName)}
	client, err := tempool.Dial(ctx, options)
	if err != nil {
		return err
	}
	defer client.Close()
	show, end := s.screen.progress(len(s.library.Files))
	summary, err := codemetrics.Run(ctx, codemetrics.Config{
		Client: client, Pool: pool.Name(), Files: s.library.Files, Progress: show,
	})
	end()
	if err != nil {
		return err
	}
	s.screen.line("%s", summaryText(summary, s.library.Folder, restarts(ctx, pool)-before))
	return nil
}

// restarts returns the sum of all restarts of the pool's workers; a worker that does not answer counts 0.
func restarts(ctx context.Context, pool *tempool.Pool) (n int64) {
	ctx, cancel := context.WithTimeout(ctx, workersTimeout)
	defer cancel()
	view, err := pool.Workers(ctx)
	if err != nil {
		return 0
	}
	for _, w := range view.Workers {
		n += w.Restarts
	}
	return n
}

// summaryText formats the result of a job.
func summaryText(s codemetrics.Summary, folder string, restarts int64) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\n  files\t%s\n    that do not parse\t%s\n  bytes\t%s\n  lines\t%s\n", grouped(int64(s.Files)),
		grouped(int64(s.Problems)), grouped(s.Bytes), grouped(s.Lines))
	fmt.Fprintf(table, "  functions\t%s\n  classes\t%s\n", grouped(s.Functions), grouped(s.Classes))
	fmt.Fprintf(table, "  cyclomatic complexity\t%s in all, %.2f for each function\n", grouped(s.Complexity),
		float64(s.Complexity)/float64(max(1, s.Functions)))
	fmt.Fprintf(table, "  time\t%s, %.0f files a second\n", rounded(s.Took), float64(s.Files)/max(1e-3, s.Took.Seconds()))
	fmt.Fprintf(table, "  calls\t%d, %d retried\n  worker restarts\t%d\n", s.Calls, s.Retried, restarts)
	_ = table.Flush() // into memory
	if len(s.Worst) > 0 {
		text.WriteString("\n  The most complex functions\n")
	}
	for _, f := range s.Worst {
		path := strings.TrimPrefix(f.Path, folder+string(filepath.Separator))
		fmt.Fprintf(table, "  %d\t%s\t%s:%d\n", f.Complexity, f.Name, path, f.Line)
	}
	_ = table.Flush()
	return strings.TrimRight(text.String(), "\n")
}

// grouped formats a count with thousands separators: 1,234,567.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for at := len(digits) - 3; at > 0; at -= 3 {
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
