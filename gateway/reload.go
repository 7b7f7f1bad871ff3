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

// stamp shows whether a file is still the one that was read.
type stamp struct {
	modified time.Time
	size     int64
	inode    os.FileInfo
}

func stampOf(file string) stamp {
	info, err := os.Stat(file)
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size(), info}
}

func (s stamp) same(o stamp) bool {
	if s.inode == nil || o.inode == nil {
		return s.inode == o.inode
	}
	return s.modified.Equal(o.modified) && s.size == o.size && os.SameFile(s.inode, o.inode)
}

// watched is one reader of files, and the files as it last read them.
type watched struct {
	reader reloader
	files  []string
	stamps []stamp
}

// changed reports whether a file has changed since the last call.
func (w *watched) changed() bool {
	changed := false
	for i, file := range w.files {
		if file == "" {
			continue
		}
		if now := stampOf(file); !now.same(w.stamps[i]) {
			w.stamps[i], changed = now, true
		}
	}
	return changed
}

func (w *watched) reload(logger *slog.Logger) bool {
	err := w.reader.Reload()
	if err != nil {
		logger.Error("cannot reload a gateway file; keeping its previous contents in effect", "error", err)
	}
	return err == nil
}

// watchFiles reads changed files again until ctx ends. It logs a file that it cannot read, and keeps its previous contents in effect.
func watchFiles(ctx context.Context, files map[reloader][]string, logger *slog.Logger) {
	var all []*watched
	for reader, files := range files {
		w := &watched{reader: reader, files: files, stamps: make([]stamp, len(files))}
		w.changed()
		w.reload(logger) // it may have changed since it was first read
		all = append(all, w)
	}
	for range sleep.Ticks(ctx.Done(), reloadInterval) {
		for _, w := range all {
			if w.changed() && w.reload(logger) {
				logger.Info("reloaded changed gateway files", "files", w.files)
			}
		}
	}
}
