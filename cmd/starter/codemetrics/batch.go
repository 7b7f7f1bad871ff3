package codemetrics

import (
	"cmp"
	"context"
	"os"
	"slices"
	"sync/atomic"
)

// batch is the files of one call.
type batch struct {
	paths []string
	// failures counts the started calls with exactly this batch that failed.
	failures int
}

// halves splits a batch of more than one file.
func (b batch) halves() []batch {
	middle := len(b.paths) / 2
	return []batch{{paths: b.paths[:middle]}, {paths: b.paths[middle:]}}
}

// pack puts files into batches of at most maxFiles files and maxBytes bytes, large files first so that none delays the end.
// A file above maxBytes is a batch of its own; a file whose size cannot be read counts as empty. Duplicate paths are packed once.
func pack(paths []string, maxFiles int, maxBytes int64) []batch {
	type sized struct {
		path string
		size int64
	}
	files := make([]sized, 0, len(paths))
	seen := make(map[string]bool, len(paths))
	for _, path := range paths {
		if seen[path] {
			continue
		}
		seen[path] = true
		file := sized{path: path}
		if info, err := os.Stat(path); err == nil {
			file.size = info.Size()
		}
		files = append(files, file)
	}
	slices.SortFunc(files, func(a, b sized) int { return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.path, b.path)) })
	var batches []batch
	var open batch
	var size int64
	for _, file := range files {
		if len(open.paths) > 0 && (len(open.paths) == maxFiles || size+file.size > maxBytes) {
			batches = append(batches, open)
			open, size = batch{}, 0
		}
		open.paths = append(open.paths, file.path)
		size += file.size
	}
	if len(open.paths) > 0 {
		batches = append(batches, open)
	}
	return batches
}

// queue holds the waiting batches and counts the unfinished ones. It is safe for concurrent use.
type queue struct {
	waiting    chan batch // has room for a batch of each file, so that putBack never blocks
	unfinished atomic.Int64
}

func newQueue(batches []batch, files int) *queue {
	q := &queue{waiting: make(chan batch, files)}
	q.unfinished.Store(1)
	q.putBack(batches...)
	return q
}

// take waits for a batch; false means that ctx has ended. The caller calls finish or putBack once for each batch.
func (q *queue) take(ctx context.Context) (batch, bool) {
	select {
	case <-ctx.Done():
		return batch{}, false
	case b := <-q.waiting:
		return b, true
	}
}

// putBack returns a batch that was taken, whole or in parts.
func (q *queue) putBack(parts ...batch) {
	q.unfinished.Add(int64(len(parts)) - 1)
	for _, part := range parts {
		q.waiting <- part
	}
}

// finish ends a batch that was taken.
func (q *queue) finish() { q.unfinished.Add(-1) }

// done reports whether all batches are finished.
func (q *queue) done() bool { return q.unfinished.Load() == 0 }
