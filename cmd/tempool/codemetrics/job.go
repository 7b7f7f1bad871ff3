// Package codemetrics is the job of the example pool: it measures Python files on the workers of a pool, and counts
// each file exactly once, whatever happens to the workers.
package codemetrics

import (
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
)

// Config says what to measure and where.
type Config struct {
	Client *tempool.Client
	Pool   string
	// Files are paths that the pool's workers can read.
	Files []string
	// Concurrency is how many calls are made at the same time.
	Concurrency int
	// Patience is for how long calls about the same files may fail before the job fails.
	Patience time.Duration
	// Progress, if set, is called after each answer with what is counted so far.
	Progress func(sum Summary)
}

// Counts are the sums over the functions and classes of one file, or of all.
type Counts struct {
	Bytes, Lines, Functions, Classes int64
	Complexity                       int64 // over all functions
}

// FileMeasure is a worker's answer about one file; examples/codemetrics/complexity.py defines the measures.
type FileMeasure struct {
	Path string
	Counts
	// Problem is why the file cannot be read or parsed; nil if it can.
	Problem *string
}

// Summary is the sum over all files.
type Summary struct {
	Files int
	Counts
	Problems int // files that cannot be read or parsed; they count in Files, Bytes and Lines
	Took     time.Duration
	// Retried counts the calls that failed and whose files were sent again.
	Retried int
}

// Run measures all files, each once even if Files has it twice, and returns their sum. To measure a file again does no
// harm, so each call that failed is repeated, until it succeeds or has failed for as long as config.Patience. The
// Summary of a job that fails has what was counted.
func Run(ctx context.Context, config Config) (sum Summary, err error) {
	began := time.Now()
	calls := &patientCaller{patience: config.Patience,
		pool: config.Client.Pool(config.Pool).With(tempool.CallOptions{Timeout: callTimeout})}
	defer func() { sum.Took, sum.Retried = time.Since(began), int(calls.retried.Load()) }()
	batches := slices.Chunk(slices.Compact(slices.Sorted(slices.Values(config.Files))), batchFiles)
	for measures, err := range tempool.Map[[]FileMeasure](ctx, calls, method, batches, config.Concurrency) {
		if err != nil {
			return sum, err
		}
		sum.add(measures)
		sum.Retried = int(calls.retried.Load())
		if config.Progress != nil {
			config.Progress(sum)
		}
	}
	return sum, nil
}

func (s *Summary) add(measures []FileMeasure) {
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
	}
}

// patientCaller repeats calls that fail.
type patientCaller struct {
	pool     *tempool.Pool
	patience time.Duration
	retried  atomic.Int64
}

// Call measures in, a list of paths, and decodes the answer, which has each of them once, into out, a *[]FileMeasure.
func (c *patientCaller) Call(ctx context.Context, method string, in, out any) error {
	paths, measures := in.([]string), out.(*[]FileMeasure)
	for deadline := time.Now().Add(c.patience); ; c.retried.Add(1) {
		*measures = nil
		err := c.pool.Call(ctx, method, map[string]any{"paths": paths, "top": 0}, measures)
		if err == nil &&
			slices.EqualFunc(paths, *measures, func(path string, m FileMeasure) bool { return path == m.Path }) {
			return nil
		} else if err == nil {
			err = fmt.Errorf("the worker's answer does not have the %d files of the call", len(paths))
		}
		final := []api.Code{api.CodePoolNotFound, api.CodeMethodNotFound, api.CodeInvalid}
		if ctx.Err() != nil || time.Now().After(deadline) || slices.Contains(final, api.CodeOf(err)) {
			return fmt.Errorf("measure %s and %d more files: %w", paths[0], len(paths)-1, err)
		}
		sleep.For(ctx.Done(), retryPause)
	}
}
