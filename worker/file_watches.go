package worker

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker/filewatch"
)

const (
	// fileScanInterval is the time between two scans of this host's processes for files to watch.
	fileScanInterval = time.Second
	// fileLinger is how long files stay watched after the pool's last process on this host has ended: the change that
	// fixes its program may still come.
	fileLinger = 10 * time.Minute
	// fileRetry is the delay after a failure to open a watch.
	fileRetry = 5 * time.Second
)

// fileWatches watches the files that the specs of this host's processes name, and signals changes to their pools.
type fileWatches struct {
	changed   func(pool, host string, files []string) // reports them to the pool
	processes interface{ List() []*process.Process }
	host      string
	log       *slog.Logger
	linger    time.Duration

	pools map[string]*poolFiles // only run uses it
}

// poolFiles is the watch of one pool. Its watcher is nil while opening it fails.
type poolFiles struct {
	dir     string
	watch   spec.Watch
	watcher *filewatch.Watcher
	retryAt time.Time
	usedAt  time.Time // when the pool last had a process here
}

func newFileWatches(changed func(pool, host string, files []string), processes *process.Supervisor, host string,
	log *slog.Logger) *fileWatches {
	return &fileWatches{changed: changed, processes: processes, host: host, log: log, linger: fileLinger,
		pools: map[string]*poolFiles{}}
}

// run watches until ctx ends.
func (f *fileWatches) run(ctx context.Context) {
	f.scan(time.Now())
	for now := range sleep.Ticks(ctx.Done(), fileScanInterval) {
		f.scan(now)
	}
	for _, p := range f.pools {
		p.close()
	}
}

// scan opens, replaces and closes watches so that they match the spec of the newest process of each pool.
func (f *fileWatches) scan(now time.Time) {
	newest := map[string]*process.Process{}
	for _, p := range f.processes.List() {
		pool := api.PoolOf(p.Worker())
		if other := newest[pool]; other == nil || p.Info().StartedAt.After(other.Info().StartedAt) {
			newest[pool] = p
		}
	}
	for name, p := range newest {
		f.ensure(name, p, now)
	}
	for name, p := range f.pools {
		if now.Sub(p.usedAt) > f.linger {
			p.close()
			delete(f.pools, name)
		}
	}
}

// since returns the start time of the pool's oldest process with the same watch: that process may have read its files
// before a change that the watch was too late to see.
func (f *fileWatches) since(newest *process.Process, now time.Time) time.Time {
	sp, oldest := newest.Spec(), now
	for _, p := range f.processes.List() {
		other, began := p.Spec(), p.Info().StartedAt
		if other.Pool.Name == sp.Pool.Name && sameWatch(other.Watch, sp.Watch) && !began.IsZero() && began.Before(oldest) {
			oldest = began
		}
	}
	return oldest
}

// ensure makes the pool's watch match the spec of its newest process. A new watch also reports the files that changed
// since the oldest one started.
func (f *fileWatches) ensure(name string, newest *process.Process, now time.Time) {
	sp, current := newest.Spec(), f.pools[name]
	if current != nil && (current.dir != sp.Pool.Dir || !sameWatch(current.watch, sp.Watch)) {
		current.close()
		delete(f.pools, name)
		current = nil
	}
	if len(sp.Watch.Paths) == 0 {
		return
	}
	if current == nil {
		current = &poolFiles{dir: sp.Pool.Dir, watch: sp.Watch}
		f.pools[name] = current
	}
	current.usedAt = now
	if current.watcher != nil || now.Before(current.retryAt) {
		return
	}
	if err := f.open(name, current, f.since(newest, now)); err != nil {
		current.retryAt = now.Add(fileRetry)
		f.log.Error("cannot watch the files of a pool; retrying", "pool", name, "error", err)
	}
}

func sameWatch(a, b spec.Watch) bool {
	return a.Debounce == b.Debounce && slices.Equal(a.Paths, b.Paths) && slices.Equal(a.Ignore, b.Ignore)
}

func (f *fileWatches) open(name string, p *poolFiles, since time.Time) error {
	dir, err := filepath.Abs(p.dir) // the agent's own folder if it is empty
	if err != nil {
		return fmt.Errorf("find the folder that watch.paths are relative to: %w", err)
	}
	p.watcher, err = filewatch.Open(filewatch.Options{
		Dir: dir, Paths: p.watch.Paths, Ignore: p.watch.Ignore, Debounce: p.watch.Debounce.D(), Since: since,
		Logger: f.log.With("pool", name),
		Changed: func(files []string) {
			f.log.Info("watched files changed", "pool", name, "file", files[0], "files", len(files))
			f.changed(name, f.host, files)
		},
	})
	return err
}

func (p *poolFiles) close() {
	if p.watcher != nil {
		p.watcher.Close()
	}
}
