package filewatch

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// addRoots watches every path that is there, and for those that are not the nearest folder above, in which they may appear. Where
// tell is set, what appears counts as changed.
func (w *Watcher) addRoots(tell bool) {
	for _, root := range w.roots {
		for !w.addRoot(root, tell) {
			// It, or a folder on the way to it, appeared before the folder above was watched.
		}
	}
}

// addRoot reports whether nothing came in between.
func (w *Watcher) addRoot(root string, tell bool) bool {
	info, err := os.Stat(root)
	if err != nil {
		if !w.missing[root] {
			w.missing[root] = true
			w.options.Logger.Warn("a watched path does not exist; it is watched from when it does", "path", root, "error", err)
		}
		above := nearestExisting(filepath.Dir(root))
		w.addFolder(above)
		return nearestExisting(root) == above
	}
	appeared := w.missing[root]
	if appeared {
		delete(w.missing, root)
		w.options.Logger.Info("a watched path has appeared", "path", root)
	}
	if info.IsDir() {
		w.addTree(root, tell)
		return true
	}
	// A file is watched through its folder: an editor that renames another file into its place leaves a watch on the old one.
	w.addFolder(filepath.Dir(root))
	if appeared && tell || w.isNew(info) {
		w.markChanged(root)
	}
	return true
}

// nearestExisting is the path, or the nearest folder above it that is there.
func nearestExisting(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// addTree watches a folder and those in it. Where tell is set, the files in them count as changed: they may have been made before
// the watch began. Links to folders are not followed, but for a watched path that is one.
func (w *Watcher) addTree(name string, tell bool) {
	start := name
	if slices.Contains(w.roots, name) {
		start += string(filepath.Separator) // looks behind a link
	}
	err := filepath.WalkDir(start, func(path string, entry fs.DirEntry, err error) error {
		path = filepath.Clean(path)
		switch {
		case isGone(err):
			return nil
		case err != nil:
			w.options.Logger.Warn("a watched folder cannot be read", "path", path, "error", err)
			return fs.SkipDir
		case w.ignored(path, entry.IsDir()):
			if entry.IsDir() {
				return fs.SkipDir
			}
		case entry.IsDir():
			w.addFolder(path)
		case tell:
			w.markChanged(path)
		default:
			if info, err := entry.Info(); err == nil && w.isNew(info) { // else it has gone
				w.markChanged(path)
			}
		}
		return nil
	})
	if err != nil {
		w.options.Logger.Warn("a watched folder cannot be read", "path", name, "error", err)
	}
}

// isNew reports whether a file was modified between Options.Since and the watch's beginning.
func (w *Watcher) isNew(info fs.FileInfo) bool {
	return !w.started && !w.options.Since.IsZero() && info.ModTime().After(w.options.Since)
}

// dropTree ends the watch on a folder that has gone, and on those that were in it: what stands in their place later is another.
func (w *Watcher) dropTree(name string) {
	for path := range w.watched {
		if _, inside := relativeTo(name, path); inside {
			_ = w.notify.Remove(path) // the system may have forgotten it before
			delete(w.watched, path)
		}
	}
}

func (w *Watcher) addFolder(path string) {
	if w.watched[path] {
		return
	}
	switch err := w.notify.Add(path); {
	case err == nil:
		w.watched[path] = true
	case !isGone(err):
		w.options.Logger.Error("a folder cannot be watched", "path", path, "error", withAdvice(err))
	}
}
