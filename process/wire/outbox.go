package wire

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// flushPiece is how much a flush hands to one Write, in bytes; it bounds how vaguely offered counts.
const flushPiece = 64 << 10

// outbox writes messages without ever blocking the sender. A sender tries one non-blocking write itself, which nearly always
// takes everything; only what the stream does not take at once goes to a backlog, which the flush goroutine writes.
// The backlog is bounded by its senders: each place in flight owns at most a request and a cancel in it.
type outbox struct {
	w     io.Writer
	quick quickWriter // nil when w cannot be written without blocking; then every message takes the backlog

	mu      sync.Mutex
	backlog []byte        // queued and not yet offered
	busy    bool          // the flush goroutine owns the stream
	clear   chan struct{} // closed when the backlog becomes empty; nil while it is
	offered int64         // stream offset up to which bytes may have left
	queued  int64         // stream offset of the next message
	err     error         // sticky: the stream takes no more

	kick chan struct{}
}

func newOutbox(w io.Writer) *outbox {
	return &outbox{w: w, quick: quickly(w), kick: make(chan struct{}, 1)}
}

// send writes or queues head and body as one message and keeps neither. It returns the message's place in the stream for
// mayHaveLeft. After an error the stream takes nothing more; mayHaveLeft is then false if nothing of this message was taken.
func (o *outbox) send(head, body []byte) (int64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := o.queued
	if o.err != nil {
		return at, o.err
	}
	o.queued += int64(len(head) + len(body))
	if o.quick != nil && !o.busy {
		for len(head) > 0 {
			n, err := o.now(head)
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
	o.backlog = append(append(o.backlog, head...), body...)
	if !o.busy {
		o.busy = true
		o.clear = make(chan struct{})
		o.kick <- struct{}{}
	}
	return at, nil
}

// now makes one non-blocking write; o.mu is held and the flush goroutine is not writing.
func (o *outbox) now(data []byte) (int, error) {
	n, err := o.quick.tryWrite(data)
	o.offered += int64(n)
	if err != nil {
		o.err = fmt.Errorf("writing to the worker: %w", peerClosed(err))
	}
	return n, o.err
}

// mayHaveLeft tells whether any byte of the message at this place may have reached the worker.
func (o *outbox) mayHaveLeft(at int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.offered > at
}

// backlogged counts the bytes that wait to be written.
func (o *outbox) backlogged() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.backlog)
}

// waitClear waits until nothing is queued, so that senders without a place in flight cannot grow the backlog.
func (o *outbox) waitClear(ctx context.Context, done <-chan struct{}) error {
	o.mu.Lock()
	clear := o.clear
	o.mu.Unlock()
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
func (o *outbox) flush(done <-chan struct{}) error {
	for {
		select {
		case <-done:
			return nil
		case <-o.kick:
		}
		for {
			o.mu.Lock()
			if len(o.backlog) == 0 {
				o.backlog, o.busy = nil, false
				close(o.clear)
				o.clear = nil
				o.mu.Unlock()
				break
			}
			piece := o.backlog[:min(len(o.backlog), flushPiece)]
			o.backlog = o.backlog[len(piece):]
			o.offered += int64(len(piece))
			o.mu.Unlock()
			if _, err := o.w.Write(piece); err != nil {
				err = fmt.Errorf("writing to the worker: %w", peerClosed(err))
				o.mu.Lock()
				o.err = err
				o.mu.Unlock()
				return err
			}
		}
	}
}
