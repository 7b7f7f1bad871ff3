package worker

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker/filewatch"
)

const (
	// fileLinger is how long files stay watched after the pool's last process on this host has ended: the change that
	// fixes its program may still come.
	fileLinger = 10 * time.Minute
	// fileRetry is the delay after a failure to open a watch.
	fileRetry = 5 * time.Second
)

// fileWatches watches the files that the specs of this host's processes name, and signals changes to their pools.
type fileWatches struct {
	changed   func(pool, host string, files []string) // reports them to the pool
	processes *process.Supervisor
	host      string
	log       *slog.Logger
}

// newFileWatches makes what watches the files of each pool.
func newFileWatches(changed func(pool, host string, files []string), processes *process.Supervisor, host string,
	log *slog.Logger) *whileHere {
	f := &fileWatches{changed: changed, processes: processes, host: host, log: log}
	return &whileHere{list: processes.List, key: func(p *process.Process) any { return watchOf(p) }, open: f.open,
		failure: "cannot watch the files of a pool", retry: fileRetry, linger: fileLinger, log: log,
		held: map[string]*held{}}
}

// watch is what a process's spec says about the files to watch.
type watch struct {
	dir           string
	paths, ignore []string
	debounce      spec.Duration
}

func watchOf(p *process.Process) watch {
	sp := p.SharedSpec()
	return watch{sp.Pool.Dir, sp.Watch.Paths, sp.Watch.Ignore, sp.Watch.Debounce}
}

// open watches the files of a pool's newest process. It also reports those that changed since the pool's oldest process
// with the same watch started, which may have read them before a change that the watch was too late to see.
func (f *fileWatches) open(pool string, newest *process.Process) (end func(), err error) {
	wanted := watchOf(newest)
	if len(wanted.paths) == 0 {
		return func() {}, nil
	}
	dir, err := filepath.Abs(wanted.dir) // the agent's own folder if it is empty
	if err != nil {
		return nil, fmt.Errorf("find the folder that watch.paths are relative to: %w", err)
	}
	since := time.Now()
	for _, p := range f.processes.List() {
		began := p.Info().StartedAt
		if api.PoolOf(p.Worker()) == pool && reflect.DeepEqual(watchOf(p), wanted) && !began.IsZero() &&
			began.Before(since) {
			since = began
		}
	}
	watcher, err := filewatch.Open(filewatch.Options{
		Dir: dir, Paths: wanted.paths, Ignore: wanted.ignore, Debounce: wanted.debounce.D(), Since: since,
		Logger: f.log.With("pool", pool),
		Changed: func(files []string) {
			f.log.Info("watched files changed", "pool", pool, "file", files[0], "files", len(files))
			f.changed(pool, f.host, files)
		},
	})
	if err != nil {
		return nil, err
	}
	return watcher.Close, nil
}
