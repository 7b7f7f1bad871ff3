package wire

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// maxFlushWrite is how much a flush hands to one Write, in bytes; it bounds how vaguely offered counts.
const maxFlushWrite = 64 << 10

// writer writes messages without ever blocking the sender. A sender tries one non-blocking write itself, which nearly always
// takes everything; only what the stream does not take at once goes to a backlog, which the flush goroutine writes.
// The backlog is bounded by its senders: each place in flight owns at most a request and a cancel in it.
type writer struct {
	w           io.Writer
	nonBlocking nonBlockingWriter // nil when w cannot be written without blocking; then every message takes the backlog

	mu      sync.Mutex
	backlog []byte        // queued and not yet offered
	busy    bool          // the flush goroutine owns the stream
	drained chan struct{} // closed when the backlog becomes empty; nil while it is
	offered int64         // stream offset up to which bytes may have left
	queued  int64         // stream offset of the next message
	err     error         // sticky: the stream takes no more

	wake chan struct{}
}

func newWriter(w io.Writer) *writer {
	return &writer{w: w, nonBlocking: newNonBlockingWriter(w), wake: make(chan struct{}, 1)}
}

// sendCancel writes or queues head and body as one message and keeps neither. It returns the message's place in the stream for
// mayHaveLeft. After an error the stream takes nothing more; mayHaveLeft is then false if nothing of this message was taken.
func (w *writer) send(head, body []byte) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.queued
	if w.err != nil {
		return at, w.err
	}
	w.queued += int64(len(head) + len(body))
	if w.nonBlocking != nil && !w.busy {
		for len(head) > 0 {
			n, err := w.tryWriteLocked(head)
			if err != nil {
				return at, err
			}
			if head = head[n:]; len(head) == 0 {
				head, body = body, nil
			} else {
				break
			}
		}
		if len(head) == 0 {
			return at, nil
		}
	}
	w.backlog = append(append(w.backlog, head...), body...)
	if !w.busy {
		w.busy = true
		w.drained = make(chan struct{})
		w.wake <- struct{}{}
	}
	return at, nil
}

// now makes one non-blocking write; o.mu is held and the flush goroutine is not writing.
func (w *writer) tryWriteLocked(data []byte) (int, error) {
	n, err := w.nonBlocking.tryWrite(data)
	w.offered += int64(n)
	if err != nil {
		w.err = fmt.Errorf("writing to the worker: %w", peerClosed(err))
	}
	return n, w.err
}

// mayHaveLeft tells whether any byte of the message at this place may have reached the worker.
func (w *writer) mayHaveLeft(at int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.offered > at
}

// backlogged counts the bytes that wait to be written.
func (w *writer) backlogged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.backlog)
}

// waitDrained waits until nothing is queued, so that senders without a place in flight cannot grow the backlog.
func (w *writer) waitDrained(ctx context.Context, done <-chan struct{}) error {
	w.mu.Lock()
	clear := w.drained
	w.mu.Unlock()
	if clear == nil {
		return nil
	}
	select {
	case <-clear:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return nil
	}
}

// flush writes backlogs until done closes; it returns why the stream takes no more, or nil at done. One goroutine runs it.
func (w *writer) flush(done <-chan struct{}) error {
	for {
		select {
		case <-done:
			return nil
		case <-w.wake:
		}
		for {
			w.mu.Lock()
			if len(w.backlog) == 0 {
				w.backlog, w.busy = nil, false
				close(w.drained)
				w.drained = nil
				w.mu.Unlock()
				break
			}
			piece := w.backlog[:min(len(w.backlog), maxFlushWrite)]
			w.backlog = w.backlog[len(piece):]
			w.offered += int64(len(piece))
			w.mu.Unlock()
			if _, err := w.w.Write(piece); err != nil {
				err = fmt.Errorf("writing to the worker: %w", peerClosed(err))
				w.mu.Lock()
				w.err = err
				w.mu.Unlock()
				return err
			}
		}
	}
}
