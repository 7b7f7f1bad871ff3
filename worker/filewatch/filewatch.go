// Package filewatch tells when files have changed and are quiet again: whole trees, also folders that are made later, and files
// that an editor replaces by renaming another into their place.
package filewatch

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Options say what to watch. Paths and Debounce have no default.
type Options struct {
	// Dir is the folder that relative paths and patterns with a slash count from; absolute.
	Dir string
	// Paths are files and folders, relative to Dir or absolute. A folder stands for all that is in it. One that does not exist is
	// logged, and watched from when it does.
	Paths []string
	// Ignore are patterns in the manner of gitignore(5), after those that always hold.
	Ignore []string
	// Debounce is how long everything must be quiet before changes are told.
	Debounce time.Duration
	// Since, if set, has files count as changed that were modified after it, before the watch began.
	Since  time.Time
	Logger *slog.Logger
}

// Watcher watches until Close.
type Watcher struct {
	options Options
	roots   []string // absolute and clean
	ignore  ignore
	notify  *fsnotify.Watcher
	changes chan []string
	stop    chan struct{}
	done    sync.WaitGroup
	close   sync.Once

	// Of the loop alone:
	watched      map[string]bool // folders that notify has
	missing      map[string]bool // roots that are not there
	changed      map[string]bool
	started      bool // the loop has: what it finds now it has been told of
	eventMatched bool // changed has been added to by the event in hand
}

// Open begins to watch. It fails when the system lends no watcher.
func Open(o Options) (*Watcher, error) {
	if !filepath.IsAbs(o.Dir) || len(o.Paths) == 0 || o.Debounce <= 0 {
		return nil, errors.New("watching files takes an absolute folder, at least one path and a debounce time")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch files: %w", withAdvice(err))
	}
	w := &Watcher{
		options: o, ignore: newIgnore(o.Ignore), notify: notify, changes: make(chan []string), stop: make(chan struct{}),
		watched: map[string]bool{}, missing: map[string]bool{}, changed: map[string]bool{},
	}
	for _, path := range o.Paths {
		if !filepath.IsAbs(path) {
			path = filepath.Join(o.Dir, path)
		}
		w.roots = append(w.roots, filepath.Clean(path))
	}
	w.addRoots(false)
	w.started = true
	w.done.Go(w.run)
	return w, nil
}

// Changes delivers, after each time of quiet, the files that have changed since the last delivery, absolute and in order. While
// nobody receives, changes gather. It is never closed.
func (w *Watcher) Changes() <-chan []string { return w.changes }

// Close ends the watcher and waits for it. It may be called more than once.
func (w *Watcher) Close() {
	w.close.Do(func() {
		close(w.stop)
		w.done.Wait()
		_ = w.notify.Close()
	})
}

// withAdvice says what to do where the system's own words mislead.
func withAdvice(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: this host lets nobody watch more folders; raise fs.inotify.max_user_watches, or leave folders out by watch.ignore", err)
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w: raise fs.inotify.max_user_instances, or the agent's limit on open files", err)
	}
	return err
}

func (w *Watcher) run() {
	quiet := time.NewTimer(time.Hour)
	quiet.Stop()
	defer quiet.Stop()
	if len(w.changed) > 0 { // since Options.Since
		quiet.Reset(w.options.Debounce)
	}
	var deliver chan []string // nil until it is quiet
	var batch []string
	for {
		select {
		case <-w.stop:
			return
		case event, open := <-w.notify.Events:
			if !open {
				return
			}
			if w.handle(event) {
				quiet.Reset(w.options.Debounce)
				deliver = nil
			}
		case err, open := <-w.notify.Errors:
			if !open {
				return
			}
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				w.options.Logger.Warn("changes of files came faster than they could be read; all watched paths count as changed")
				for _, root := range w.roots {
					w.markChanged(root)
				}
				w.addRoots(true)
				quiet.Reset(w.options.Debounce)
				deliver = nil
				continue
			}
			w.options.Logger.Warn("watching files meets an error", "error", err)
		case <-quiet.C:
			batch, deliver = slices.Sorted(maps.Keys(w.changed)), w.changes
		case deliver <- batch:
			deliver = nil
			clear(w.changed)
		}
	}
}

// handle looks at one event and reports whether something that is watched for has changed.
func (w *Watcher) handle(event fsnotify.Event) bool {
	w.eventMatched = false
	name := filepath.Clean(event.Name)
	if event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename) {
		w.dropTree(name)
		if slices.Contains(w.roots, name) {
			w.addRoots(true) // it may be back already, renamed into place
		}
	}
	if event.Has(fsnotify.Create) {
		if len(w.missing) > 0 {
			w.addRoots(true)
		}
		if w.rootOf(name) != "" {
			w.addTree(name, true)
		}
	}
	if event.Op != fsnotify.Chmod && w.rootOf(name) != "" && !w.ignored(name, w.watched[name]) {
		w.markChanged(name)
	}
	return w.eventMatched
}

func (w *Watcher) markChanged(name string) {
	w.changed[name], w.eventMatched = true, true
}

// rootOf is the watched path that name is, or lies in; "" if there is none.
func (w *Watcher) rootOf(name string) string {
	for _, root := range w.roots {
		if _, inside := relativeTo(root, name); inside {
			return root
		}
	}
	return ""
}

// relativeTo returns name relative to folder, and whether it is the folder or lies in it.
func relativeTo(folder, name string) (relative string, inside bool) {
	relative, err := filepath.Rel(folder, name)
	inside = err == nil && relative != ".." && !strings.HasPrefix(relative, ".."+string(filepath.Separator))
	return filepath.ToSlash(relative), inside
}

// ignored asks the patterns about a name in a watched path. That path itself is never ignored, and whoever names a path in an ignored
// folder means it: then patterns count from that path.
func (w *Watcher) ignored(name string, isFolder bool) bool {
	root := w.rootOf(name)
	if name == root {
		return false
	}
	base := root
	if relative, inside := relativeTo(w.options.Dir, root); inside && !w.ignore.ignores(relative, true) {
		base = w.options.Dir
	}
	relative, _ := relativeTo(base, name)
	return w.ignore.ignores(relative, isFolder)
}

func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) }
