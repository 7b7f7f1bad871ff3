package dev

import (
	"context"
	"fmt"
	"path/filepath"
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
	show, end := s.screen.progress(len(s.library.Files))
	client, err := s.operatorClient(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	summary, err := codemetrics.Run(ctx, codemetrics.Config{
		Client: client, Pool: pool.Name(), Files: s.library.Files, Progress: show,
	})
	end()
	if err != nil {
		return err
	}
	after := restarts(ctx, pool)
	s.screen.line("%s", summaryText(summary, s.library.Folder, after-before))
	return nil
}

// operatorClient returns a client that calls its own gateway over its Unix socket, where tempool dev needs
// neither a token nor a certificate. The caller closes it.
func (s *starter) operatorClient(ctx context.Context) (*tempool.Client, error) {
	options := s.temporal
	options.Gateways = []string{"unix:" + filepath.Join(s.data.agentState(), worker.SocketName)}
	return tempool.Dial(ctx, options)
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
	row := func(name, format string, args ...any) {
		fmt.Fprintf(table, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintln(table)
	row("files", "%s", grouped(int64(s.Files)))
	row("  that do not parse", "%s", grouped(int64(s.Problems)))
	row("bytes", "%s", grouped(s.Bytes))
	row("lines", "%s", grouped(s.Lines))
	row("functions", "%s", grouped(s.Functions))
	row("classes", "%s", grouped(s.Classes))
	row("cyclomatic complexity", "%s in all, %.2f for each function", grouped(s.Complexity), s.MeanComplexity())
	row("time", "%s, %.0f files a second", rounded(s.Took), s.FilesPerSecond())
	row("calls", "%d, %d retried", s.Calls, s.Retried)
	row("worker restarts", "%d", restarts)
	_ = table.Flush() // into memory
	if len(s.Worst) > 0 {
		text.WriteString("\n  The most complex functions\n")
		for _, f := range s.Worst {
			fmt.Fprintf(table, "  %d\t%s\t%s:%d\n", f.Complexity, f.Name, relative(folder, f.Path), f.Line)
		}
		_ = table.Flush()
	}
	return strings.TrimRight(text.String(), "\n")
}

func relative(folder, path string) string {
	if short, err := filepath.Rel(folder, path); err == nil {
		return short
	}
	return path
}
