package wire

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// maxFlushWrite bounds one Write of a flush, in bytes, and with it the error of offered.
const maxFlushWrite = 64 << 10

// writer writes messages without blocking the sender. The sender tries one non-blocking write, which nearly always
// writes everything; the rest goes to a backlog, which a goroutine writes until it is empty. Each call in flight has at
// most a request and a cancel in the backlog.
type writer struct {
	w io.Writer
	// tryWrite writes as much as w accepts without blocking; nil if w has no such writes, and every message goes to the
	// backlog.
	tryWrite func(data []byte) (n int, err error)

	mu      sync.Mutex
	backlog []byte        // not yet offered
	run     func()        // starts the goroutine that calls flush; nil after the end of the Conn
	drained chan struct{} // closed when that goroutine, which owns the stream, has emptied the backlog; nil if none does
	offered int64         // stream offset up to which bytes may have been written
	queued  int64         // stream offset of the next message
	err     error         // sticky
}

// end starts no further goroutine.
func (w *writer) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run = nil
}

// send writes or queues head and body as one message and retains neither. It returns the message's stream offset for
// mayHaveLeft. After an error every further send fails; mayHaveLeft is then false if nothing of this message was
// written.
func (w *writer) send(head, body []byte) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.queued
	if w.err != nil {
		return at, w.err
	}
	w.queued += int64(len(head) + len(body))
	for w.tryWrite != nil && w.drained == nil && len(head) > 0 {
		n, err := w.tryWriteLocked(head)
		if err != nil {
			return at, err
		}
		if head = head[n:]; len(head) > 0 {
			break
		}
		head, body = body, nil
	}
	if len(head) == 0 {
		return at, nil
	}
	w.backlog = append(append(w.backlog, head...), body...)
	if w.drained == nil {
		w.drained = make(chan struct{})
		if w.run != nil {
			w.run()
		}
	}
	return at, nil
}

// tryWriteLocked makes one non-blocking write; no goroutine may be in flush.
func (w *writer) tryWriteLocked(data []byte) (int, error) {
	n, err := w.tryWrite(data)
	w.offered += int64(n)
	if err != nil {
		w.err = fmt.Errorf("write to the worker: %w", peerClosed(err))
	}
	return n, w.err
}

// mayHaveLeft reports whether any byte of the message at this offset may have reached the worker.
func (w *writer) mayHaveLeft(at int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.offered > at
}

// failed reports whether a write has failed: nothing can follow it.
func (w *writer) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

// isDrained reports whether everything was written, without an error.
func (w *writer) isDrained() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.drained == nil && w.err == nil
}

// backlogged returns the size of the backlog in bytes.
func (w *writer) backlogged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.backlog)
}

// waitDrained waits until the backlog is empty, so that notifications cannot grow it.
func (w *writer) waitDrained(ctx context.Context, done <-chan struct{}) error {
	w.mu.Lock()
	drained := w.drained
	w.mu.Unlock()
	if drained == nil {
		return nil
	}
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return nil
	}
}

// flush writes the backlog until it is empty or a write fails.
func (w *writer) flush() error {
	for {
		w.mu.Lock()
		if len(w.backlog) == 0 {
			close(w.drained)
			w.backlog, w.drained = nil, nil
			w.mu.Unlock()
			return nil
		}
		piece := w.backlog[:min(len(w.backlog), maxFlushWrite)]
		w.backlog = w.backlog[len(piece):]
		w.offered += int64(len(piece))
		w.mu.Unlock()
		if _, err := w.w.Write(piece); err != nil {
			err = fmt.Errorf("write to the worker: %w", peerClosed(err))
			w.mu.Lock()
			w.err = err
			w.mu.Unlock()
			return err
		}
	}
}
