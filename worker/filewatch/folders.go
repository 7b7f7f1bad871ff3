package filewatch

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// addRoots watches the roots that exist; for a missing root it watches the nearest existing folder above. With report
// set, they and the files of folders count as changed.
func (w *Watcher) addRoots(roots []string, report bool) {
	for _, root := range roots {
		for !w.addRoot(root, report) {
			// Retry: the root, or a folder above it, appeared before the folder above was watched.
		}
	}
}

// addRoot returns false if it must be called again, because a folder above a missing root appeared meanwhile.
func (w *Watcher) addRoot(root string, report bool) bool {
	info, err := os.Stat(root)
	if err != nil {
		if !w.missing[root] {
			w.missing[root] = true
			w.options.Logger.Warn("watched path does not exist yet", "path", root, "error", err)
		}
		above := nearestExisting(filepath.Dir(root))
		w.addFolder(above)
		return nearestExisting(root) == above
	}
	if w.missing[root] {
		delete(w.missing, root)
		w.options.Logger.Info("watched path has appeared", "path", root)
	}
	if info.IsDir() {
		w.addTree(root, report)
		return true
	}
	// Watch a file through its folder: after an editor renames another file into its place, a watch on the file would
	// follow the old one.
	w.addFolder(filepath.Dir(root))
	if report || w.isNew(info) {
		w.markChanged(root)
	}
	return true
}

// nearestExisting returns the path if it exists, else the nearest existing folder above it.
func nearestExisting(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// addTree watches a folder and all folders below it. With report set, the files in them count as changed: they may have
// been created before the watch began. It does not follow links to folders, except a root that is one.
func (w *Watcher) addTree(name string, report bool) {
	start := name
	if slices.Contains(w.roots, name) {
		start += string(filepath.Separator) // follows a link
	}
	err := filepath.WalkDir(start, func(path string, entry fs.DirEntry, err error) error {
		path = filepath.Clean(path)
		switch {
		case isGone(err):
			return nil
		case err != nil:
			w.options.Logger.Warn("cannot read a watched folder", "path", path, "error", err)
			return fs.SkipDir
		case w.ignored(path, entry.IsDir()):
			if entry.IsDir() {
				return fs.SkipDir
			}
		case entry.IsDir():
			w.addFolder(path)
		case report:
			w.markChanged(path)
		default:
			if info, err := entry.Info(); err == nil && w.isNew(info) { // on an error the file is gone
				w.markChanged(path)
			}
		}
		return nil
	})
	if err != nil {
		w.options.Logger.Warn("cannot read a watched folder", "path", name, "error", err)
	}
}

// isNew reports whether a file was modified between Options.Since and Open.
func (w *Watcher) isNew(info fs.FileInfo) bool {
	return !w.started && !w.options.Since.IsZero() && info.ModTime().After(w.options.Since)
}

// dropTree stops watching a removed folder and the folders below it. A folder that appears at the same path is a new
// one.
func (w *Watcher) dropTree(name string) {
	for path := range w.watched {
		if _, inside := relativeTo(name, path); inside {
			_ = w.notify.Remove(path) // the operating system may have removed the watch already
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
		w.options.Logger.Error("cannot watch a folder", "path", path, "error", withAdvice(err))
	}
}
