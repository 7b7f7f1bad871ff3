package tree

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// WatchExit returns a function that waits until a child has exited and does not reap it, so the PID stays taken. Call WatchExit before
// anything reaps the child, and the function exactly once.
func WatchExit(pid int) (wait func()) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return func() { awaitZombie(pid) }
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	return func() {
		defer file.Close()
		exited := false
		if raw, err := file.SyscallConn(); err == nil {
			_ = raw.Read(func(fd uintptr) bool { // after any failure exited is false
				var err error
				exited, err = readable(int(fd))
				return exited || err != nil
			})
		}
		if !exited {
			awaitZombie(pid)
		}
	}
}

// identityPoll is the interval at which the process table is asked on kernels without pidfds.
const identityPoll = 50 * time.Millisecond

// WatchIdentity is WatchExit for any process; one that is not a child of this program may be reaped by its parent.
func WatchIdentity(id Identity) (wait func()) {
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return func() {
			for isLiving(id) {
				time.Sleep(identityPoll)
			}
		}
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	return func() {
		defer file.Close()
		raw, err := file.SyscallConn()
		for err == nil && isLiving(id) { // its number may have been another's by the time the descriptor was opened
			exited := false
			err = raw.Read(func(fd uintptr) bool {
				var pollErr error
				exited, pollErr = readable(int(fd))
				return exited || pollErr != nil
			})
			if exited {
				return
			}
		}
	}
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

// awaitZombie is the fallback for kernels without pidfds. It blocks a thread. An error means that the child is gone already.
func awaitZombie(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}
