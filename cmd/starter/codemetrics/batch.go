package codemetrics

import (
	"cmp"
	"context"
	"os"
	"slices"
	"sync"
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

// queue holds the waiting batches and counts those in progress. It is safe for concurrent use.
type queue struct {
	mu         sync.Mutex
	waiting    []batch
	inProgress int
	changed    chan struct{} // closed and replaced when batches were put back
}

func newQueue(batches []batch) *queue { return &queue{waiting: batches, changed: make(chan struct{})} }

// take waits for a batch; false means that ctx has ended. The caller calls finish or putBack once for each batch.
func (q *queue) take(ctx context.Context) (batch, bool) {
	for ctx.Err() == nil {
		b, found, changed := q.tryTake()
		if found {
			return b, true
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return batch{}, false
}

func (q *queue) tryTake() (batch, bool, <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return batch{}, false, q.changed
	}
	b := q.waiting[0]
	q.waiting = q.waiting[1:]
	q.inProgress++
	return b, true, nil
}

// putBack returns a batch that was taken, whole or in parts, to the front.
func (q *queue) putBack(parts ...batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inProgress--
	q.waiting = append(slices.Clone(parts), q.waiting...)
	close(q.changed)
	q.changed = make(chan struct{})
}

// finish ends a batch that was taken.
func (q *queue) finish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inProgress--
}

// done reports whether all batches are finished.
func (q *queue) done() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inProgress == 0 && len(q.waiting) == 0
}
