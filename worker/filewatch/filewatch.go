// Package filewatch reports changed files once they have been quiet for a while. It watches whole trees, including
// folders that are created later, and files that an editor replaces by renaming another file into their place.
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

// Options configure a Watcher. All but Ignore and Since are required.
type Options struct {
	// Dir is the absolute folder that paths and patterns with a slash are relative to.
	Dir string
	// Paths are files and folders, absolute or relative to Dir. A folder includes everything below it. A missing path is
	// logged, and watched once it exists.
	Paths []string
	// Ignore are patterns as in gitignore(5). They follow alwaysIgnored and can negate its patterns.
	Ignore []string
	// Debounce is how long all files must be unchanged before changes are delivered.
	Debounce time.Duration
	// Changed is called with the absolute paths, sorted, of the files that have changed since its last call. It must
	// return at once.
	Changed func(files []string)
	// Since, if set, makes files count as changed that were modified between it and Open.
	Since  time.Time
	Logger *slog.Logger
}

// Watcher watches until Close.
type Watcher struct {
	options Options
	roots   []string // absolute and clean
	ignore  ignore
	notify  *fsnotify.Watcher
	stop    chan struct{}
	done    sync.WaitGroup

	// Only the loop uses the following fields:
	watched      map[string]bool // folders that notify watches
	missing      map[string]bool // roots that do not exist
	changed      map[string]bool
	started      bool // the loop runs, so every further change comes as an event
	eventMatched bool // the current event has changed a watched file
}

// Open starts watching. It fails if the operating system refuses a watcher.
func Open(o Options) (*Watcher, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch files: %w", withAdvice(err))
	}
	w := &Watcher{
		options: o, ignore: newIgnore(o.Ignore), notify: notify, stop: make(chan struct{}),
		watched: map[string]bool{}, missing: map[string]bool{}, changed: map[string]bool{},
	}
	for _, path := range o.Paths {
		if !filepath.IsAbs(path) {
			path = filepath.Join(o.Dir, path)
		}
		w.roots = append(w.roots, filepath.Clean(path))
	}
	w.addRoots(w.roots, false)
	w.started = true
	w.done.Go(w.run)
	return w, nil
}

// Close stops the watcher and waits for it. It is called once.
func (w *Watcher) Close() {
	close(w.stop)
	w.done.Wait()
	_ = w.notify.Close()
}

// withAdvice adds what to do to errors whose own text misleads.
func withAdvice(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: the limit of watched folders is reached; raise fs.inotify.max_user_watches, or exclude "+
			"folders with watch.ignore", err)
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w: raise fs.inotify.max_user_instances, or the agent's limit of open files", err)
	}
	return err
}

func (w *Watcher) run() {
	quiet := time.NewTimer(time.Hour)
	quiet.Stop()
	defer quiet.Stop()
	if len(w.changed) > 0 { // found by Options.Since
		quiet.Reset(w.options.Debounce)
	}
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
			}
		case err, open := <-w.notify.Errors:
			if !open {
				return
			}
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				w.options.Logger.Warn("file events overflowed; treating all watched paths as changed")
				for _, root := range w.roots {
					w.markChanged(root)
				}
				w.addRoots(w.roots, true)
				quiet.Reset(w.options.Debounce)
				continue
			}
			w.options.Logger.Warn("watching files failed", "error", err)
		case <-quiet.C:
			w.options.Changed(slices.Sorted(maps.Keys(w.changed)))
			clear(w.changed)
		}
	}
}

// handle processes one event and reports whether a watched file has changed.
func (w *Watcher) handle(event fsnotify.Event) bool {
	w.eventMatched = false
	name := filepath.Clean(event.Name)
	if event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename) {
		w.dropTree(name)
		w.addRoots(slices.DeleteFunc(slices.Clone(w.roots), func(root string) bool {
			_, inside := relativeTo(name, root)
			return !inside
		}), true) // another file may have been renamed into its place
	}
	if event.Has(fsnotify.Create) {
		w.addRoots(slices.Collect(maps.Keys(w.missing)), true)
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

// rootOf returns the watched path that is or contains name, or "".
func (w *Watcher) rootOf(name string) string {
	for _, root := range w.roots {
		if _, inside := relativeTo(root, name); inside {
			return root
		}
	}
	return ""
}

// relativeTo returns name relative to folder, and whether name is the folder or below it.
func relativeTo(folder, name string) (relative string, inside bool) {
	relative, err := filepath.Rel(folder, name)
	inside = err == nil && relative != ".." && !strings.HasPrefix(relative, ".."+string(filepath.Separator))
	return filepath.ToSlash(relative), inside
}

// ignored reports whether the patterns exclude a name in a watched path. The watched path itself is never ignored. If
// it lies in an ignored folder, the patterns are relative to that path.
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
