// Package codemetrics is the job of the example pool: it measures Python files on the workers of a pool, and counts
// each file exactly once, whatever happens to the workers.
package codemetrics

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

const (
	// method is that of the workers. It takes {"paths": […], "top": n} and returns one FileMeasure for each path, in
	// order.
	method = "measure"
	// batchFiles is how many files one call measures.
	batchFiles = 25
	// callTimeout bounds one call, retryPause is between two calls about the same files.
	callTimeout, retryPause = 20 * time.Second, 100 * time.Millisecond
	// topFunctions is how many of the most complex functions the Summary lists.
	topFunctions = 5
)

// Config says what to measure and where.
type Config struct {
	Client *tempool.Client
	Pool   string
	// Files are paths that the pool's workers can read.
	Files []string
	// Concurrency is how many calls are made at the same time. Default: the size of the pool.
	Concurrency int
	// Patience is for how long calls about the same files may fail before the job fails. Default: two minutes.
	Patience time.Duration
	// Progress, if set, is called after each answer with what is counted so far and the number of all files.
	Progress func(sum Summary, total int)
}

// Run measures all files, each once even if Files has it twice, and returns their sum. To measure a file again does no
// harm, so each call that failed is repeated, until it succeeds or has failed for as long as config.Patience. The
// Summary of a job that fails has what was counted.
func Run(ctx context.Context, config Config) (sum Summary, err error) {
	began := time.Now()
	pool := config.Client.Pool(config.Pool)
	if config.Concurrency == 0 {
		status, err := pool.Status(ctx)
		if err != nil {
			return sum, err
		}
		config.Concurrency = status.Size
	}
	files := slices.Compact(slices.Sorted(slices.Values(config.Files)))
	calls := &patientCaller{pool: pool.With(tempool.CallOptions{Timeout: callTimeout}),
		patience: cmp.Or(config.Patience, 2*time.Minute)}
	defer func() { sum.Took, sum.Retried = time.Since(began), int(calls.retried.Load()) }()
	batches := slices.Chunk(files, batchFiles)
	for measures, err := range tempool.Map[[]FileMeasure](ctx, calls, method, batches, config.Concurrency) {
		if err != nil {
			return sum, err
		}
		sum.add(measures)
		sum.Retried = int(calls.retried.Load())
		if config.Progress != nil {
			config.Progress(sum, len(files))
		}
	}
	return sum, nil
}

// patientCaller repeats calls that fail.
type patientCaller struct {
	pool     *tempool.Pool
	patience time.Duration
	retried  atomic.Int64
}

// Call measures in, a list of paths, and decodes the answer into out, a *[]FileMeasure.
func (c *patientCaller) Call(ctx context.Context, method string, in, out any) error {
	paths, measures := in.([]string), out.(*[]FileMeasure)
	for deadline := time.Now().Add(c.patience); ; c.retried.Add(1) {
		*measures = nil
		err := c.pool.Call(ctx, method, map[string]any{"paths": paths, "top": topFunctions}, measures)
		if err == nil {
			err = complete(paths, *measures)
		}
		if err == nil {
			return nil
		}
		final := ctx.Err() != nil || time.Now().After(deadline)
		switch api.CodeOf(err) {
		case api.CodePoolNotFound, api.CodeMethodNotFound, api.CodeInvalid:
			final = true
		}
		if final {
			return fmt.Errorf("measure %s and %d more files: %w", paths[0], len(paths)-1, err)
		}
		sleep.For(ctx.Done(), retryPause)
	}
}

// complete checks that an answer has each file once, in order.
func complete(paths []string, measures []FileMeasure) error {
	if !slices.EqualFunc(paths, measures, func(path string, m FileMeasure) bool { return path == m.Path }) {
		return fmt.Errorf("the worker's answer has %d files, not the %d of the call in their order", len(measures),
			len(paths))
	}
	return nil
}

// Function is one function and its cyclomatic complexity.
type Function struct {
	Path       string `json:"path,omitempty"`
	Name       string `json:"name"` // with the classes and functions around it, as in Outer.method
	Line       int    `json:"line"`
	Complexity int    `json:"complexity"`
}

// Counts are the sums over the functions and classes of one file, or of all.
type Counts struct {
	Bytes      int64      `json:"bytes"`
	Lines      int64      `json:"lines"`
	Functions  int64      `json:"functions"`
	Classes    int64      `json:"classes"`
	Complexity int64      `json:"complexity"` // over all functions
	Worst      []Function `json:"worst"`
}

// FileMeasure is a worker's answer about one file; examples/codemetrics/complexity.py defines the measures.
type FileMeasure struct {
	Path string `json:"path"`
	Counts
	// Problem is why the file cannot be read or parsed; nil if it can.
	Problem *string `json:"problem"`
}

// Summary is the sum over all files.
type Summary struct {
	Files int
	Counts
	Problems int // files that cannot be read or parsed; they count in Files, Bytes and Lines
	Took     time.Duration
	// Calls counts the calls that succeeded, Retried those that failed and whose files were sent again.
	Calls, Retried int
}

func (s *Summary) add(measures []FileMeasure) {
	s.Calls++
	s.Files += len(measures)
	for _, m := range measures {
		s.Bytes += m.Bytes
		s.Lines += m.Lines
		s.Functions += m.Functions
		s.Classes += m.Classes
		s.Complexity += m.Complexity
		if m.Problem != nil {
			s.Problems++
		}
		for _, f := range m.Worst {
			f.Path = m.Path
			s.Worst = append(s.Worst, f)
		}
	}
	slices.SortFunc(s.Worst, func(a, b Function) int {
		return cmp.Or(cmp.Compare(b.Complexity, a.Complexity), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	s.Worst = slices.Clip(s.Worst[:min(topFunctions, len(s.Worst))])
}
