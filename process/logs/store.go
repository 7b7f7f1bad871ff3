package logs

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/tempool/tempool/internal/sleep"
)

// Bounds of the logs on disk.
const (
	// DefaultWorkerBytes is the size of a worker's log, and MinWorkerBytes the least that can be set.
	DefaultWorkerBytes = 8 << 20
	MinWorkerBytes     = 1 << 20
	// Retention is how long the log of a worker without a process on this host is kept.
	Retention = 7 * 24 * time.Hour
	// writeRate is how many bytes of a worker are written in a second, after a burst of half of its log.
	writeRate = 1 << 20
)

const (
	// pace is the least time between two rounds of writing, and retryEvery between two attempts after a failure.
	pace       = 5 * time.Millisecond
	limitedFor = 50 * time.Millisecond
	retryEvery = time.Second
	pruneEvery = 10 * time.Minute
	// closeTimeout bounds the writing of what is left when a Store is closed.
	closeTimeout = 2 * time.Second
	// reportEvery is the least time between two warnings that the logs cannot be written.
	reportEvery = time.Minute
)

// Config configures a Store.
type Config struct {
	// Dir is the folder of the logs, which Open creates, for this user only.
	Dir string
	// WorkerBytes bounds the log of each worker on disk; default DefaultWorkerBytes.
	WorkerBytes int64
	// TotalBytes bounds all logs together: logs of workers that have no process here are deleted first, and nothing else
	// is. 0 means no bound.
	TotalBytes int64
	Logger     *slog.Logger
}

// Store keeps the logs of a host's workers. All methods are safe for concurrent use.
type Store struct {
	config Config
	work   chan struct{} // a log has something to write
	stop   context.CancelFunc
	done   <-chan struct{} // of run

	dropped atomic.Int64 // lines, of all workers

	mu      sync.Mutex // guards the fields below
	workers map[string]*workerLog
	changes sleep.Changes // a log has a new line

	reported time.Time // when run last warned
}

// Dropped counts the lines that were not written since Open: they came too fast, or the disk did not take them.
func (s *Store) Dropped() int64 { return s.dropped.Load() }

// Open opens the folder of the logs; those that are in it stay readable. The caller must Close it.
func Open(config Config) (*Store, error) {
	config.WorkerBytes = max(cmp.Or(config.WorkerBytes, DefaultWorkerBytes), MinWorkerBytes)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	if err := os.MkdirAll(config.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the workers' logs: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Store{config: config, work: make(chan struct{}, 1), stop: stop, workers: make(map[string]*workerLog)}
	s.prune()
	s.done = sleep.Done(func() { s.run(ctx) })
	return s, nil
}

// Close writes what is left and ends. It waits for a disk that does not answer for 2 s only.
func (s *Store) Close() {
	s.stop()
	if sleep.For(s.done, closeTimeout) {
		s.config.Logger.Warn("cannot write the last lines of the workers' logs to disk", "dir", s.config.Dir)
	}
}

// Output returns what takes the lines of an incarnation of a worker. The caller must Close it.
func (s *Store) Output(worker string, incarnation int64) *Output {
	s.mu.Lock() // so that the log is not removed before it has an Output
	w := s.logLocked(worker)
	w.enter(incarnation)
	s.mu.Unlock()
	return &Output{log: w, incarnation: incarnation}
}

// Workers lists the workers that have a log, sorted.
func (s *Store) Workers() ([]string, error) {
	entries, err := os.ReadDir(s.config.Dir)
	if err != nil {
		return nil, fmt.Errorf("list the workers' logs: %w", err)
	}
	names := make(map[string]bool)
	for _, entry := range entries {
		if name, err := url.PathUnescape(entry.Name()); err == nil && entry.IsDir() {
			names[name] = true
		}
	}
	s.mu.Lock()
	for name := range s.workers {
		names[name] = true
	}
	s.mu.Unlock()
	return slices.Sorted(maps.Keys(names)), nil
}

// announce wakes those who wait for new lines.
func (s *Store) announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes.Announce()
}

// Changed returns a channel that is closed soon after the next line of any worker.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes.Next()
}

func (s *Store) dir(worker string) string {
	return filepath.Join(s.config.Dir, url.PathEscape(worker))
}

// logLocked returns the log of a worker, which is made if necessary.
func (s *Store) logLocked(worker string) *workerLog {
	w := s.workers[worker]
	if w == nil {
		w = &workerLog{
			store: s, segments: segments{dir: s.dir(worker), most: s.config.WorkerBytes}, disk: semaphore.NewWeighted(1),
			limiter: rate.NewLimiter(writeRate, int(s.config.WorkerBytes/2)), live: make(map[int64]int),
		}
		s.workers[worker] = w
	}
	return w
}

// known returns the log of a worker, nil if there is none.
func (s *Store) known(worker string) *workerLog {
	s.mu.Lock()
	w := s.workers[worker]
	s.mu.Unlock()
	if w == nil {
		if info, err := os.Stat(s.dir(worker)); err != nil || !info.IsDir() {
			return nil
		}
		s.mu.Lock()
		w = s.logLocked(worker)
		s.mu.Unlock()
	}
	return w
}

// run writes the logs until ctx ends, and then what is left.
func (s *Store) run(ctx context.Context) {
	prune := time.NewTicker(pruneEvery)
	defer prune.Stop()
	var timer <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			for _, w := range s.all() {
				_, _ = w.flush(context.Background(), true)
				w.segments.close()
			}
			return
		case <-prune.C:
			s.prune()
		case <-s.work:
			s.announce()
		case <-timer:
		}
		wait := time.Duration(0)
		for _, w := range s.all() {
			if again, err := w.flush(ctx, false); err != nil && ctx.Err() == nil {
				s.report(err)
				wait = max(wait, retryEvery)
			} else if again {
				wait = max(wait, limitedFor)
			}
		}
		timer = nil
		if wait > 0 {
			timer = time.After(wait)
		}
		sleep.For(ctx.Done(), pace)
	}
}

func (s *Store) all() []*workerLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.workers))
}

// report warns that logs cannot be written.
func (s *Store) report(err error) {
	if time.Since(s.reported) < reportEvery {
		return
	}
	s.reported = time.Now()
	s.config.Logger.Warn("cannot write the workers' logs; lines are dropped until writing works again, and workers are "+
		"not affected. Free space on the disk of the state folder",
		"dir", s.config.Dir, "error", err)
}

// prune deletes the logs of workers without a process here that are older than Retention, and the oldest of them while
// all logs together are larger than TotalBytes.
func (s *Store) prune() {
	type idleLog struct {
		name  string
		bytes int64
		at    time.Time
	}
	names, err := s.Workers()
	if err != nil {
		s.report(err)
		return
	}
	total := int64(0)
	var idle []idleLog
	for _, name := range names {
		bytes, at := sizeOf(s.dir(name))
		total += bytes
		s.mu.Lock()
		w := s.workers[name]
		s.mu.Unlock()
		if !at.IsZero() && (w == nil || w.idle()) { // without a folder there is nothing to delete
			idle = append(idle, idleLog{name, bytes, at})
		}
	}
	slices.SortFunc(idle, func(a, b idleLog) int { return a.at.Compare(b.at) })
	for _, l := range idle {
		if time.Since(l.at) < Retention && (s.config.TotalBytes == 0 || total <= s.config.TotalBytes) {
			return
		}
		if s.remove(l.name, l.at) {
			total -= l.bytes
		}
	}
}

// remove deletes the log of a worker that still has no process, unless it was written after the time at.
func (s *Store) remove(worker string, at time.Time) bool {
	w := s.known(worker)
	if w == nil || w.lock(context.Background()) != nil {
		return false
	}
	removed, err := false, error(nil)
	if _, written := sizeOf(s.dir(worker)); w.idle() && written.Equal(at) {
		w.segments.close()
		w.segments.loaded = false
		err = os.RemoveAll(s.dir(worker))
		removed = err == nil
	}
	w.unlock()
	if err != nil {
		s.report(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if removed && w.idle() {
		delete(s.workers, worker)
	}
	return removed
}

// sizeOf returns the bytes of a log's folder and when it was last written.
func sizeOf(dir string) (bytes int64, at time.Time) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := entry.Info(); err == nil {
			if !entry.IsDir() {
				bytes += info.Size()
			}
			if info.ModTime().After(at) {
				at = info.ModTime()
			}
		}
		return nil
	})
	return bytes, at
}
