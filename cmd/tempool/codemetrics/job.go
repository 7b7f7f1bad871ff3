// Package codemetrics is the job of the example pool: it measures Python files on the workers of a pool, and counts
// each file exactly once, whatever happens to the workers.
package codemetrics

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

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
	// Progress, if set, is called after each call, by one goroutine at a time. It should return quickly.
	Progress func(Progress)
}

// Progress is how far a job is.
type Progress struct {
	Files, Total int
	Retried      int // failed calls so far
}

// Run measures all files, each once even if Files has it twice, and returns their sum. To measure a file again does no
// harm, so each call that failed is repeated, until it succeeds or has failed for as long as config.Patience. The
// Summary of a job that fails has what was counted.
func Run(ctx context.Context, config Config) (Summary, error) {
	began := time.Now()
	pool := config.Client.Pool(config.Pool)
	if config.Concurrency == 0 {
		status, err := pool.Status(ctx)
		if err != nil {
			return Summary{}, err
		}
		config.Concurrency = max(1, status.Size)
	}
	files := slices.Compact(slices.Sorted(slices.Values(config.Files)))
	j := &job{pool: pool.With(tempool.CallOptions{Timeout: callTimeout}), config: config, total: len(files)}
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(config.Concurrency)
	for paths := range slices.Chunk(files, batchFiles) {
		calls.Go(func() error { return j.measure(ctx, paths) })
	}
	err := calls.Wait()
	j.sum.Took = time.Since(began)
	return j.sum, err
}

type job struct {
	pool   *tempool.Pool
	config Config
	total  int

	mu  sync.Mutex
	sum Summary // guarded by mu
}

// measure counts the files of one call.
func (j *job) measure(ctx context.Context, paths []string) error {
	patience := time.Now().Add(cmp.Or(j.config.Patience, 2*time.Minute))
	for {
		var measures []FileMeasure
		err := j.pool.Call(ctx, method, map[string]any{"paths": paths, "top": topFunctions}, &measures)
		if err == nil {
			err = complete(paths, measures)
		}
		if err == nil {
			j.record(measures)
			return nil
		}
		final := time.Now().After(patience)
		switch api.CodeOf(err) {
		case api.CodePoolNotFound, api.CodeMethodNotFound, api.CodeInvalid:
			final = true
		}
		if final || ctx.Err() != nil {
			return fmt.Errorf("measure %s and %d more files: %w", paths[0], len(paths)-1, err)
		}
		j.record(nil)
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

// record adds up the answer to a call; nil is that of a call that failed.
func (j *job) record(measures []FileMeasure) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if measures == nil {
		j.sum.Retried++
	} else {
		j.sum.add(measures)
	}
	if j.config.Progress != nil {
		j.config.Progress(Progress{Files: j.sum.Files, Total: j.total, Retried: j.sum.Retried})
	}
}
