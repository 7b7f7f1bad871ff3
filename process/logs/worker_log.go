package logs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/tempool/tempool/internal/sleep"
)

// Bounds on the lines of a worker that are not on disk yet.
const (
	maxPendingBytes = 2 << 20   // beside the batch
	lineOverhead    = 96        // of a Line in memory, in bytes
	batchBytes      = 128 << 10 // written at once
)

// workerLog is the log of one worker: the files, and the lines that wait to be written.
type workerLog struct {
	store    *Store
	disk     *semaphore.Weighted // of 1: a lock with a deadline
	segments segments
	limiter  *rate.Limiter

	mu      sync.Mutex // guards the fields below; never held during a disk operation
	loaded  bool       // next is above all numbers in the files
	next    int64
	batch   []Line        // are written next, or being written
	pending []Line        // after the batch
	bytes   int           // of pending
	follows int64         // the number of the first pending line, unless lines before it were dropped
	urgent  bool          // write all that is pending, whatever the rate
	live    map[int64]int // Outputs by incarnation that are not closed
}

// lock waits for the files until ctx ends.
func (w *workerLog) lock(ctx context.Context) error {
	if err := w.disk.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("the disk with the logs does not respond: %w", err)
	}
	return nil
}

func (w *workerLog) unlock() { w.disk.Release(1) }

func (w *workerLog) enter(incarnation int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live[incarnation]++
}

func (w *workerLog) leave(incarnation int64) {
	w.mu.Lock()
	if w.live[incarnation]--; w.live[incarnation] <= 0 {
		delete(w.live, incarnation)
	}
	w.urgent = true
	w.mu.Unlock()
	sleep.Wake(w.store.work)
}

// idle reports whether nothing uses the log.
func (w *workerLog) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.live) == 0 && len(w.batch)+len(w.pending) == 0
}

// isLive reports whether an incarnation may still write.
func (w *workerLog) isLive(incarnation int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.live[incarnation] > 0
}

// add takes a line. It never waits for the disk.
func (w *workerLog) add(line Line) {
	line.Text = strings.ReplaceAll(line.Text, "\n", " ")
	w.mu.Lock()
	line.Seq = w.next
	w.next++
	w.pending = append(w.pending, line)
	w.bytes += line.size()
	drop := 0
	for w.bytes > maxPendingBytes {
		w.bytes -= w.pending[drop].size()
		drop++
	}
	clear(w.pending[:drop])
	w.pending = w.pending[drop:]
	w.mu.Unlock()
	w.store.dropped.Add(int64(drop))
	sleep.Wake(w.store.work)
}

func (l Line) size() int { return len(l.Text) + lineOverhead }

// pendingLocked returns the first pending lines, after a line about those that were dropped before them.
func (w *workerLog) pendingLocked(n int) []Line {
	lines := slices.Clone(w.pending[:n])
	if n == 0 || lines[0].Seq == w.follows {
		return lines
	}
	return slices.Insert(lines, 0, Line{
		Seq: lines[0].Seq - 1, At: lines[0].At, Incarnation: lines[0].Incarnation, Stream: Tempool,
		Text: fmt.Sprintf("%d lines dropped: they arrived faster than the disk accepted them", lines[0].Seq-w.follows),
	})
}

// nextBatch returns the lines to write next: those that could not be written before, or else the oldest pending ones.
func (w *workerLog) nextBatch() []Line {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.batch) > 0 || len(w.pending) == 0 {
		return w.batch
	}
	n, size := 1, w.pending[0].size()
	for n < len(w.pending) && size+w.pending[n].size() <= batchBytes {
		size += w.pending[n].size()
		n++
	}
	w.batch = w.pendingLocked(n)
	w.bytes -= size
	w.follows = w.pending[n-1].Seq + 1
	if w.pending = w.pending[n:]; len(w.pending) == 0 {
		w.pending = nil
	}
	return w.batch
}

// ready makes sure that new lines get higher numbers than those in the files. The caller has the files.
func (w *workerLog) ready() error {
	if err := w.segments.load(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.loaded {
		w.loaded = true
		first := w.segments.next()
		for i := range w.pending {
			w.pending[i].Seq += first
		}
		w.next += first
		w.follows += first
	}
	return nil
}

// flush writes the pending lines: as many as the rate allows, or all of them. again says that lines remain.
func (w *workerLog) flush(ctx context.Context, all bool) (again bool, err error) {
	w.mu.Lock()
	nothing := len(w.batch)+len(w.pending) == 0 && !w.urgent
	w.mu.Unlock()
	if nothing {
		return false, nil
	}
	if err := w.lock(ctx); err != nil {
		return true, err
	}
	defer w.unlock()
	return w.flushLocked(all)
}

func (w *workerLog) flushLocked(all bool) (again bool, err error) {
	if err := w.ready(); err != nil {
		return true, err
	}
	w.mu.Lock()
	all = all || w.urgent
	w.urgent = false
	w.mu.Unlock()
	for {
		batch := w.nextBatch()
		if len(batch) == 0 {
			break
		}
		var text []byte
		for _, line := range batch {
			text = line.appendTo(text)
		}
		if !w.limiter.AllowN(time.Now(), min(len(text), w.limiter.Burst())) && !all {
			return true, nil
		}
		if err := w.segments.write(batch[0].Seq, text); err != nil {
			return true, err
		}
		w.mu.Lock()
		w.batch = nil
		w.mu.Unlock()
	}
	if w.idle() {
		w.segments.close()
	}
	return false, nil
}
