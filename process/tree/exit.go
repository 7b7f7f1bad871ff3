package tree

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// exitPoll is the interval at which the process table is asked where there are no pidfds: on macOS, and on Linux before
// 5.10.
const exitPoll = 50 * time.Millisecond

// WatchExit returns a function that waits until a process has exited and does not reap it, so the PID of a child stays
// taken; another process may be reaped by its parent. Call WatchExit before anything reaps a child, and the function
// exactly once. A child may be without its start, which could not be read.
func WatchExit(id Identity) (wait func()) {
	pidfd := openPidfd(id.PID)
	return func() {
		defer pidfd.Close()
		// the number may have been another process's by the time the descriptor was opened, but not that of a child
		for (id.Start == 0 && pidfd != nil || isLiving(id)) && !awaitExit(pidfd) {
			time.Sleep(exitPoll)
		}
	}
}

// isLiving reports whether a process lives. One whose first thread alone has ended is a zombie with others.
func isLiving(id Identity) bool {
	e, err := ReadEntry(id.PID)
	return err != nil || e != nil && (e.Identity == id || id.Start == 0) && (!e.Zombie || e.threads > 1)
}

// awaitExit waits for the process of a pidfd. It reports false after any failure, and for nil.
func awaitExit(pidfd *os.File) (exited bool) {
	if raw, err := pidfd.SyscallConn(); err == nil {
		_ = raw.Read(func(fd uintptr) bool {
			var err error
			exited, err = readable(int(fd))
			return exited || err != nil
		})
	}
	return exited
}

func readable(fd int) (bool, error) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0, err
		}
	}
}
