package wire

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// unpolledWriter writes to a non-blocking descriptor outside of the runtime's poller.
//
// The runtime registers a descriptor for reading and writing at once. A stream becomes writable again whenever the
// other side has read a message, so each call would wake a thread of this process needlessly, in the middle of the
// call: that costs a quarter of the throughput of a Unix socket. An unpolledWriter uses the poller only while a Write
// has to wait.
type unpolledWriter struct {
	fd int

	mu     sync.RWMutex // read-locked while fd is written
	closed bool         // guarded by mu
	polled *os.File     // guarded by mu: that of a blocked Write
}

// newUnpolledWriter returns a writer on a duplicate descriptor of a stream. It returns nil for a stream that has none
// or whose writes block, and if the process is out of descriptors.
func newUnpolledWriter(stream any) *unpolledWriter {
	fd, err := duplicate(stream)
	if err != nil {
		return nil
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		unix.Close(fd)
		return nil
	}
	return &unpolledWriter{fd: fd}
}

// control calls f with the descriptor.
func (w *unpolledWriter) control(f func(fd uintptr)) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return os.ErrClosed
	}
	f(uintptr(w.fd))
	return nil
}

// tryWrite writes as much as the stream accepts without blocking; n may be 0.
func (w *unpolledWriter) tryWrite(data []byte) (n int, err error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return 0, os.ErrClosed
	}
	for {
		n, err := syscall.Write(w.fd, data)
		switch err {
		case nil:
			return n, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, nil
		default:
			return 0, err
		}
	}
}

// Write writes all of data. It blocks while the other side does not read.
func (w *unpolledWriter) Write(data []byte) (written int, err error) {
	for {
		n, err := w.tryWrite(data[written:])
		written += n
		if err != nil || written == len(data) {
			return written, err
		}
		if polled, err := w.poll(); err == nil {
			defer w.unpoll()
			n, err := polled.Write(data[written:])
			return written + n, err
		}
		// The process is out of descriptors, unless w is closed. Close may have to wait for this.
		if err := w.control(func(fd uintptr) {
			unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 100)
		}); err != nil {
			return written, err
		}
	}
}

// poll returns a duplicate of the descriptor, which the runtime's poller knows until unpoll or Close.
func (w *unpolledWriter) poll() (*os.File, error) {
	polled, err := Duplicate(w)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		polled.Close()
		return nil, os.ErrClosed
	}
	w.polled = polled
	return polled, nil
}

func (w *unpolledWriter) unpoll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.polled != nil {
		w.polled.Close()
		w.polled = nil
	}
}

// Close unblocks Write.
func (w *unpolledWriter) Close() error {
	w.mu.Lock()
	already, polled := w.closed, w.polled
	w.closed, w.polled = true, nil
	w.mu.Unlock()
	if already {
		return os.ErrClosed
	}
	if polled != nil {
		polled.Close()
	}
	return unix.Close(w.fd)
}
