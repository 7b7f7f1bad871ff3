package logs

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/tempool/tempool/internal/sleep"
)

// Bounds on the lines of a worker that are not on disk yet.
const (
	maxPendingBytes = 2 << 20
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
	pending []Line
	bytes   int
	dropped int64         // before the first pending line
	taken   bool          // lines are being written, and may come back
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
	return len(w.live) == 0 && len(w.pending) == 0
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
	w.bytes += len(line.Text) + lineOverhead
	w.trim()
	w.mu.Unlock()
	sleep.Wake(w.store.work)
}

// trim drops the oldest lines beyond the bound.
func (w *workerLog) trim() {
	drop := 0
	for w.bytes > maxPendingBytes {
		w.bytes -= len(w.pending[drop].Text) + lineOverhead
		drop++
	}
	clear(w.pending[:drop])
	w.pending = w.pending[drop:]
	w.dropped += int64(drop)
	w.store.dropped.Add(int64(drop))
}

// take removes a batch of the pending lines, after a line about those that were dropped.
func (w *workerLog) take(upTo int) (batch []Line, dropped int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	size := 0
	for _, line := range w.pending {
		if size += len(line.Text) + lineOverhead; size > upTo && len(batch) > 0 {
			break
		}
		batch = append(batch, line)
		w.bytes -= len(line.Text) + lineOverhead
	}
	w.pending, w.taken = w.pending[len(batch):], len(batch) > 0
	if len(w.pending) == 0 {
		w.pending = nil
	}
	dropped, w.dropped = w.dropped, 0
	return batch, dropped
}

// putBack returns a batch that was not written.
func (w *workerLog) putBack(batch []Line, dropped int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken = false
	// what was to follow the batch is gone: drop the batch with it, so that the numbers of the lines keep their meaning
	if w.dropped > 0 {
		w.dropped += dropped + int64(len(batch))
		w.store.dropped.Add(int64(len(batch)))
		return
	}
	w.dropped = dropped
	w.pending = append(batch, w.pending...)
	for _, line := range batch {
		w.bytes += len(line.Text) + lineOverhead
	}
	w.trim()
}

// droppedLine says how many lines before next are missing.
func droppedLine(dropped int64, next Line) Line {
	return Line{
		Seq: next.Seq - 1, At: next.At, Incarnation: next.Incarnation, Stream: Tempool,
		Text: fmt.Sprintf("%d lines dropped: they arrived faster than the disk accepted them", dropped),
	}
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
		first := w.segments.next() + 1 // a line about dropped ones may come first
		for i := range w.pending {
			w.pending[i].Seq += first
		}
		w.next += first
	}
	return nil
}

// flush writes the pending lines: as many as the rate allows, or all of them. again says that lines remain.
func (w *workerLog) flush(ctx context.Context, all bool) (again bool, err error) {
	w.mu.Lock()
	idle := len(w.pending) == 0 && !w.urgent && !w.taken // a reader may put back what it has taken
	w.mu.Unlock()
	if idle {
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
		batch, dropped := w.take(batchBytes)
		if len(batch) == 0 {
			break
		}
		var text []byte
		if dropped > 0 {
			text = droppedLine(dropped, batch[0]).appendTo(text)
		}
		for _, line := range batch {
			text = line.appendTo(text)
		}
		if !w.limiter.AllowN(time.Now(), min(len(text), w.limiter.Burst())) && !all {
			w.putBack(batch, dropped)
			return true, nil
		}
		if err := w.segments.write(batch[0].Seq-1, text); err != nil {
			w.putBack(batch, dropped)
			return true, err
		}
	}
	if w.idle() {
		w.segments.close()
	}
	return false, nil
}
