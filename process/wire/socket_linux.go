package wire

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// socketWriter writes to a Unix socket outside of the runtime's poller.
//
// The runtime registers a descriptor for reading and writing at once. A Unix socket becomes writable again whenever the
// other side has read a message, so each call would wake a thread of this process needlessly, in the middle of the
// call: that costs a quarter of the throughput. A socketWriter uses the poller only while a Write has to wait.
type socketWriter struct {
	fd int

	mu     sync.RWMutex // read-locked while fd is written
	closed bool         // guarded by mu
	polled *os.File     // guarded by mu: that of a blocked Write
}

// unpolled replaces and closes out, a non-blocking Unix socket, by a socketWriter on a duplicate descriptor. It returns
// any other stream as it is, and the socket too if the process is out of descriptors.
func unpolled(out io.WriteCloser) io.WriteCloser {
	raw := rawNonBlocking(out)
	if raw == nil {
		return out
	}
	fd := -1
	err := raw.Control(func(original uintptr) {
		if domain, err := unix.GetsockoptInt(int(original), unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil ||
			domain != unix.AF_UNIX {
			return
		}
		if dup, err := unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 3); err == nil {
			fd = dup
		}
	})
	if err != nil || fd < 0 {
		return out
	}
	out.Close() // the socket stays open in its duplicate
	return &socketWriter{fd: fd}
}

// control calls f with the descriptor.
func (s *socketWriter) control(f func(fd uintptr)) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return os.ErrClosed
	}
	f(uintptr(s.fd))
	return nil
}

// tryWrite implements nonBlockingWriter.
func (s *socketWriter) tryWrite(data []byte) (int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return 0, os.ErrClosed
	}
	return writeNonBlocking(s.fd, data)
}

// Write writes all of data. It blocks while the other side does not read.
func (s *socketWriter) Write(data []byte) (int, error) {
	written, err := s.tryWrite(data)
	if err != nil || written == len(data) {
		return written, err
	}
	polled, err := s.poll()
	if err != nil {
		return written, err
	}
	defer s.unpoll()
	n, err := polled.Write(data[written:])
	return written + n, err
}

// poll returns a duplicate of the socket, which the runtime's poller knows until unpoll or Close.
func (s *socketWriter) poll() (*os.File, error) {
	polled, err := Duplicate(s)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		polled.Close()
		return nil, os.ErrClosed
	}
	s.polled = polled
	return polled, nil
}

func (s *socketWriter) unpoll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.polled != nil {
		s.polled.Close()
		s.polled = nil
	}
}

// Close unblocks Write.
func (s *socketWriter) Close() error {
	s.mu.Lock()
	already, polled := s.closed, s.polled
	s.closed, s.polled = true, nil
	s.mu.Unlock()
	if already {
		return os.ErrClosed
	}
	if polled != nil {
		polled.Close()
	}
	return unix.Close(s.fd)
}
