package wire

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// socketWriter is a Unix socket that is only written, outside of the runtime's poller.
//
// The runtime registers a descriptor for reading and writing at once. A Unix socket tells its poller that it can be written again
// whenever the other side has taken a message, so each call would wake a thread of this process for nothing, in the middle of the call:
// that costs a quarter of all calls a second. A sender asks the poller only while a Write has to wait.
type socketWriter struct {
	fd int

	mu       sync.RWMutex // read-locked while fd is written
	closed   bool         // guarded by mu
	writable *os.File     // guarded by mu: the epoll instance of a Write that waits
}

// splitSocket gives the writing side of a socket, outside of the runtime's poller if it is a non-blocking Unix socket and the system has
// room for its descriptor, and the reading side, as of newSocketReader. The writing side is a duplicate then, and out the reading side's alone;
// without one it is closed.
func splitSocket(out io.WriteCloser) (io.WriteCloser, *socketReader) {
	back := newSocketReader(out)
	raw := rawNonBlocking(out)
	if raw == nil {
		return out, back
	}
	fd := -1
	err := raw.Control(func(original uintptr) {
		if domain, err := unix.GetsockoptInt(int(original), unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || domain != unix.AF_UNIX {
			return
		}
		if dup, err := unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 3); err == nil {
			fd = dup
		}
	})
	if err != nil || fd < 0 {
		return out, back
	}
	if back != nil {
		back.closer = out
	} else {
		out.Close() // the socket lives on in its duplicate
	}
	return &socketWriter{fd: fd}, back
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

// Write writes all of data, waiting while the other side does not read.
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
		return written, fmt.Errorf("watch a socket: %w", err)
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

// watch makes an epoll instance, which the runtime sees as readable whenever the socket can be written.
func (s *socketWriter) watch() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, os.ErrClosed
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch a socket: %w", err)
	}
	if err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: unix.EPOLLOUT, Fd: int32(s.fd)}); err == nil {
		err = unix.SetNonblock(epoll, true) // or the runtime would not poll it
	}
	if err != nil {
		unix.Close(epoll)
		return nil, fmt.Errorf("watch a socket: %w", err)
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

// Close ends a Write that waits.
func (s *socketWriter) Close() error {
	s.mu.Lock()
	already, writable := s.closed, s.writable
	s.closed, s.writable = true, nil
	s.mu.Unlock()
	if already {
		return os.ErrClosed
	}
	if writable != nil {
		writable.Close() // waits for an attempt to write, which does not block
	}
	return unix.Close(s.fd)
}
