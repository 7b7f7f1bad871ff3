package gateway

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/tempool/tempool/internal/sleep"
)

// reloadInterval is how often the gateway looks for changed files.
const reloadInterval = time.Second

// watchedFiles are files that are read again when one of them changes.
type watchedFiles struct {
	names  []string // "" for none
	reload func() error
	read   []os.FileInfo // of the files as they were last read; nil for a missing one
}

// changed reports whether a file has changed since the last call.
func (w *watchedFiles) changed() bool {
	changed := false
	for i, name := range w.names {
		now, _ := os.Stat(name) // nil for a file that cannot be read
		if !isSame(now, w.read[i]) {
			w.read[i], changed = now, true
		}
	}
	return changed
}

func isSame(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && os.SameFile(a, b)
}

// readAgain logs a failure, after which the last version of the files stays in force.
func (w *watchedFiles) readAgain(logger *slog.Logger) bool {
	err := w.reload()
	if err != nil {
		logger.Error("cannot reload a gateway file; keeping its previous contents in effect", "error", err)
	}
	return err == nil
}

// watchFiles reads changed files again until ctx ends.
func watchFiles(ctx context.Context, all []*watchedFiles, logger *slog.Logger) {
	for _, w := range all {
		w.read = make([]os.FileInfo, len(w.names))
		w.changed()
		w.readAgain(logger) // it may have changed since it was first read
	}
	for range sleep.Ticks(ctx.Done(), reloadInterval) {
		for _, w := range all {
			if w.changed() && w.readAgain(logger) {
				logger.Info("reloaded changed gateway files", "files", w.names)
			}
		}
	}
}
