package tree

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// WatchExit returns a function that waits until a child has exited and does not reap it, so the PID stays taken. Call
// WatchExit before anything reaps the child, and the function exactly once.
func WatchExit(pid int) (wait func()) {
	pidfd := openPidfd(pid)
	return func() {
		defer pidfd.Close()
		if !awaitExit(pidfd) {
			awaitZombie(pid)
		}
	}
}

// identityPoll is the interval at which the process table is asked on kernels without pidfds.
const identityPoll = 50 * time.Millisecond

// WatchIdentity is WatchExit for any process; one that is not a child of this program may be reaped by its parent.
func WatchIdentity(id Identity) (wait func()) {
	pidfd := openPidfd(id.PID)
	return func() {
		defer pidfd.Close()
		for isLiving(id) && !awaitExit(pidfd) { // its number may have been another's by the time the descriptor was opened
			time.Sleep(identityPoll)
		}
	}
}

// openPidfd returns nil on kernels without pidfds.
func openPidfd(pid int) *os.File {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "pidfd")
}

// awaitExit waits for the process of a pidfd. It reports false after any failure.
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

func isLiving(id Identity) bool {
	e, err := ReadEntry(id.PID)
	return err != nil || e != nil && e.Identity == id && !e.Zombie
}

func readable(fd int) (bool, error) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0, err
		}
	}
}

// awaitZombie is the fallback for kernels without pidfds. It blocks a thread. An error means that the child is gone
// already.
func awaitZombie(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}
