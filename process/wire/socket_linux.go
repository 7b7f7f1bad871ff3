package wire

import (
	"fmt"
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

	mu       sync.RWMutex // read-locked while fd is written
	closed   bool         // guarded by mu
	writable *os.File     // guarded by mu: the epoll instance of a blocked Write
}

// splitSocket returns the writing and the reading side of out. The writing side of a non-blocking Unix socket is a
// socketWriter on a duplicate descriptor, unless the process is out of descriptors; out then belongs to the reading
// side, or is closed if that is nil (newSocketReader).
func splitSocket(out io.WriteCloser) (io.WriteCloser, *socketReader) {
	reader := newSocketReader(out)
	raw := rawNonBlocking(out)
	if raw == nil {
		return out, reader
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
		return out, reader
	}
	if reader != nil {
		reader.closer = out
	} else {
		out.Close() // the socket stays open in its duplicate
	}
	return &socketWriter{fd: fd}, reader
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
	watch, err := s.watch()
	if err != nil {
		return written, err
	}
	defer s.unwatch()
	wait, err := watch.SyscallConn()
	if err != nil {
		return written, fmt.Errorf("wait for a writable socket: %w", err)
	}
	failed := wait.Read(func(uintptr) bool {
		var n int
		n, err = s.tryWrite(data[written:])
		written += n
		return err != nil || written == len(data)
	})
	if err == nil {
		err = failed
	}
	return written, err
}

// watch returns an epoll instance, which the runtime's poller reports as readable whenever the socket is writable.
func (s *socketWriter) watch() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, os.ErrClosed
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("wait for a writable socket: %w", err)
	}
	if err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, s.fd,
		&unix.EpollEvent{Events: unix.EPOLLOUT, Fd: int32(s.fd)}); err == nil {
		err = unix.SetNonblock(epoll, true) // or the runtime would not poll it
	}
	if err != nil {
		unix.Close(epoll)
		return nil, fmt.Errorf("wait for a writable socket: %w", err)
	}
	s.writable = os.NewFile(uintptr(epoll), "socket watch")
	return s.writable, nil
}

func (s *socketWriter) unwatch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writable != nil {
		s.writable.Close()
		s.writable = nil
	}
}

// Close unblocks Write.
func (s *socketWriter) Close() error {
	s.mu.Lock()
	already, writable := s.closed, s.writable
	s.closed, s.writable = true, nil
	s.mu.Unlock()
	if already {
		return os.ErrClosed
	}
	if writable != nil {
		writable.Close() // waits for a tryWrite, which does not block
	}
	return unix.Close(s.fd)
}
