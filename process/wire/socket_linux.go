package wire

import (
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// socket is a Unix socket outside of the runtime's poller.
//
// The runtime registers a descriptor for reading and writing at once. A Unix socket tells its poller that it can be written again
// whenever the other side has taken a message, so each call would wake a thread of this process for nothing, in the middle of the call:
// that costs a quarter of all calls a second. Here the runtime polls an epoll instance which watches the socket for reading alone.
type socket struct {
	fd       int
	readable *os.File // the epoll instance; while it is open, whoever waits on it may read fd
	wait     syscall.RawConn

	mu       sync.RWMutex // read-locked while fd is written
	closed   bool         // guarded by mu
	writable *os.File     // guarded by mu: the epoll instance of a Write that waits
}

// detach takes a socket out of the runtime's poller and closes rwc; it returns rwc itself if it is not a non-blocking socket or the
// system has no room for the descriptors.
func detach(rwc io.ReadWriteCloser) io.ReadWriteCloser {
	raw := nonBlocking(rwc)
	if raw == nil {
		return rwc
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
		return rwc
	}
	s := &socket{fd: fd}
	if s.readable, s.wait, err = watch(fd, unix.EPOLLIN|unix.EPOLLRDHUP); err != nil {
		unix.Close(fd)
		return rwc
	}
	rwc.Close() // the socket lives on in its duplicate
	return s
}

// watch makes a file that the runtime sees as readable whenever one of these events is there on fd.
func watch(fd int, events uint32) (*os.File, syscall.RawConn, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, nil, fmt.Errorf("watch a socket: %w", err)
	}
	if err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err == nil {
		err = unix.SetNonblock(epoll, true) // or the runtime would not poll it
	}
	if err != nil {
		unix.Close(epoll)
		return nil, nil, fmt.Errorf("watch a socket: %w", err)
	}
	file := os.NewFile(uintptr(epoll), "socket watch")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("watch a socket: %w", err)
	}
	return file, raw, nil
}

// whenReadable calls f, at first and whenever there may be something to read, until f returns true or the socket is closed.
func (s *socket) whenReadable(f func(fd int) bool) error {
	return s.wait.Read(func(uintptr) bool { return f(s.fd) })
}

func (s *socket) Read(b []byte) (n int, err error) {
	waited := s.whenReadable(func(fd int) bool {
		n, err = readNow(fd, b)
		return n != 0 || err != nil
	})
	if waited != nil {
		return 0, waited
	}
	return n, err
}

// tryWrite implements quickWriter.
func (s *socket) tryWrite(data []byte) (int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return 0, os.ErrClosed
	}
	return writeNow(s.fd, data)
}

// Write writes all of data, waiting while the other side does not read.
func (s *socket) Write(data []byte) (int, error) {
	written, err := s.tryWrite(data)
	if err != nil || written == len(data) {
		return written, err
	}
	wait, err := s.watchWritable()
	if err != nil {
		return written, err
	}
	defer s.unwatchWritable()
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

func (s *socket) watchWritable() (syscall.RawConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, os.ErrClosed
	}
	file, wait, err := watch(s.fd, unix.EPOLLOUT)
	s.writable = file
	return wait, err
}

func (s *socket) unwatchWritable() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writable != nil {
		s.writable.Close()
		s.writable = nil
	}
}

// Close ends every Read and Write that waits.
func (s *socket) Close() error {
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
	err := s.readable.Close() // waits for a Read that runs
	unix.Close(s.fd)
	return err
}

// readNow is one read(2) on a non-blocking descriptor: 0 and no error when nothing is there, io.EOF at the end.
func readNow(fd int, b []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, b)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return 0, nil
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}
