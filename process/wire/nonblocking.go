package wire

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// nonBlockingWriter writes as much as a stream accepts without blocking; n may be 0. Only one goroutine at a time may
// use it.
type nonBlockingWriter interface {
	tryWrite(data []byte) (n int, err error)
}

// newNonBlockingWriter returns the non-blocking writer of a stream; nil if it has none.
func newNonBlockingWriter(stream any) nonBlockingWriter {
	if q, ok := stream.(nonBlockingWriter); ok {
		return q
	}
	raw := rawNonBlocking(stream)
	if raw == nil {
		return nil
	}
	w := &rawWriter{raw: raw}
	w.writeFD = w.write
	return w
}

// rawNonBlocking returns the descriptor of a stream in non-blocking mode; nil for any other stream.
func rawNonBlocking(stream any) syscall.RawConn {
	sc, ok := stream.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	var usable bool
	err = raw.Control(func(fd uintptr) {
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		usable = err == nil && flags&unix.O_NONBLOCK != 0
	})
	if err != nil || !usable {
		return nil
	}
	return raw
}

// rawWriter writes through a RawConn.
type rawWriter struct {
	raw     syscall.RawConn
	writeFD func(fd uintptr) bool // bound once, so that a write does not allocate

	// One write and its result.
	data []byte
	n    int
	err  error
}

func (w *rawWriter) tryWrite(data []byte) (int, error) {
	w.data, w.n = data, 0
	err := w.raw.Write(w.writeFD)
	w.data = nil
	if err == nil {
		err = w.err
	}
	return w.n, err
}

func (w *rawWriter) write(fd uintptr) bool {
	w.n, w.err = writeNonBlocking(int(fd), w.data)
	return true
}

// writeNonBlocking makes one write(2) on a non-blocking descriptor; a full stream is not an error.
func writeNonBlocking(fd int, data []byte) (int, error) {
	for {
		n, err := syscall.Write(fd, data)
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
