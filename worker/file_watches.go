package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker/filewatch"
)

const (
	// fileScanInterval is how often the pools of this host's processes are looked over for files to watch.
	fileScanInterval = time.Second
	// fileLinger is how long files are watched on for a pool that has no process here any more: the change that mends its program
	// may be yet to come.
	fileLinger = 10 * time.Minute
	// fileRetry is how long after a failure a watch is opened anew, or a pool told anew.
	fileRetry = 5 * time.Second
	// maxReportedFiles bounds the files named in one signal.
	maxReportedFiles = 24
)

// signalClient sends signals; client.Client is one.
type signalClient interface {
	SignalWorkflow(ctx context.Context, workflowID, runID, signalName string, arg any) error
}

// fileWatches watches the files that the specs of this host's processes name, and tells their pools of changes.
type fileWatches struct {
	temporal  signalClient
	processes interface{ List() []*process.Process }
	host      string
	log       *slog.Logger
	linger    time.Duration

	pools map[string]*poolFiles // of run alone
}

// poolFiles is one pool's watch. Its watcher is nil while it cannot be opened.
type poolFiles struct {
	dir        string
	watch      spec.Watch
	watcher    *filewatch.Watcher
	cancel     context.CancelFunc
	forwarding sync.WaitGroup
	retryAt    time.Time
	usedAt     time.Time // when a process last wanted it
}

func newFileWatches(temporal signalClient, processes *process.Supervisor, host string, log *slog.Logger) *fileWatches {
	return &fileWatches{temporal: temporal, processes: processes, host: host, log: log, linger: fileLinger, pools: map[string]*poolFiles{}}
}

// run watches until ctx ends.
func (f *fileWatches) run(ctx context.Context) {
	ticker := time.NewTicker(fileScanInterval)
	defer ticker.Stop()
	defer func() {
		for _, p := range f.pools {
			p.close()
		}
	}()
	for {
		f.scan(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// look opens, changes and closes watches so that they are those that the newest process of each pool asks for.
func (f *fileWatches) scan(ctx context.Context, now time.Time) {
	newest := map[string]*process.Process{}
	for _, p := range f.processes.List() {
		pool := p.Spec().Pool.Name
		if other := newest[pool]; other == nil || p.Info().StartedAt.After(other.Info().StartedAt) {
			newest[pool] = p
		}
	}
	for name, p := range newest {
		f.ensure(ctx, name, p.Spec(), f.since(p, now), now)
	}
	for name, p := range f.pools {
		if now.Sub(p.usedAt) > f.linger {
			p.close()
			delete(f.pools, name)
		}
	}
}

// since is when the oldest process of a pool was started that lives by the same files: it may have read them before a change that came
// before they were watched.
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

// ensure sees to it that the pool's files are watched as the spec says, and that what has changed since is told.
func (f *fileWatches) ensure(ctx context.Context, name string, sp spec.Spec, since, now time.Time) {
	held := f.pools[name]
	if held != nil && (held.dir != sp.Pool.Dir || !sameWatch(held.watch, sp.Watch)) {
		held.close()
		delete(f.pools, name)
		held = nil
	}
	if len(sp.Watch.Paths) == 0 {
		return
	}
	if held == nil {
		held = &poolFiles{dir: sp.Pool.Dir, watch: sp.Watch}
		f.pools[name] = held
	}
	held.usedAt = now
	if held.watcher != nil || now.Before(held.retryAt) {
		return
	}
	if err := f.open(ctx, name, held, since); err != nil {
		held.retryAt = now.Add(fileRetry)
		f.log.Error("the files of a pool cannot be watched", "pool", name, "error", err)
	}
}

func sameWatch(a, b spec.Watch) bool {
	return a.Debounce == b.Debounce && slices.Equal(a.Paths, b.Paths) && slices.Equal(a.Ignore, b.Ignore)
}

func (f *fileWatches) open(ctx context.Context, name string, p *poolFiles, since time.Time) error {
	dir := p.dir
	if dir == "" {
		var err error
		if dir, err = os.Getwd(); err != nil {
			return fmt.Errorf("find the folder that watch.paths count from: %w", err)
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("find the folder that watch.paths count from: %w", err)
	}
	p.watcher, err = filewatch.Open(filewatch.Options{
		Dir: dir, Paths: p.watch.Paths, Ignore: p.watch.Ignore, Debounce: p.watch.Debounce.D(), Since: since, Logger: f.log.With("pool", name),
	})
	if err != nil {
		return err
	}
	ctx, p.cancel = context.WithCancel(ctx)
	p.forwarding.Go(func() { f.forward(ctx, name, p.watcher) })
	return nil
}

func (p *poolFiles) close() {
	if p.watcher != nil {
		p.cancel()
		p.forwarding.Wait()
		p.watcher.Close()
	}
}

// tell passes changes on to the pool until ctx ends. A change that cannot be told yet is told later, with those that came meanwhile.
func (f *fileWatches) forward(ctx context.Context, pool string, w *filewatch.Watcher) {
	for {
		select {
		case <-ctx.Done():
			return
		case files := <-w.Changes():
			f.log.Info("watched files have changed", "pool", pool, "file", files[0], "files", len(files))
			for !f.send(ctx, pool, files) {
				select {
				case <-ctx.Done():
					return
				case <-time.After(fileRetry):
				}
			}
		}
	}
}

// signalTimeout bounds one signal of the agent's.
const signalTimeout = 10 * time.Second

// send reports whether the pool knows, or is no more.
func (f *fileWatches) send(ctx context.Context, pool string, files []string) bool {
	message := api.FilesChanged{Pool: pool, Host: f.host, Files: files}
	if more := len(files) - maxReportedFiles; more > 0 {
		message.Files, message.More = files[:maxReportedFiles], more
	}
	ctx, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	err := f.temporal.SignalWorkflow(ctx, api.PoolWorkflowID(pool), "", api.SignalFilesChanged, message)
	var gone *serviceerror.NotFound
	if err == nil || errors.As(err, &gone) {
		return true
	}
	f.log.Warn("a pool cannot be told of changed files yet", "pool", pool, "error", err)
	return false
}
