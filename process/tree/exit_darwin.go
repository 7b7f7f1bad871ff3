package tree

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// WatchExit returns a function that waits until a child has exited and does not reap it. Call the function exactly
// once.
func WatchExit(pid int) (wait func()) {
	queue, err := unix.Kqueue()
	if err != nil {
		return func() { awaitZombie(pid) }
	}
	unix.CloseOnExec(queue)
	return func() {
		defer unix.Close(queue)
		var change unix.Kevent_t
		unix.SetKevent(&change, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
		change.Fflags = unix.NOTE_EXIT
		events := make([]unix.Kevent_t, 1)
		for {
			_, err := unix.Kevent(queue, []unix.Kevent_t{change}, events, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || events[0].Flags&unix.EV_ERROR != 0 {
				awaitZombie(pid)
			}
			return
		}
	}
}

// awaitZombie polls the process table until the child is a zombie or gone.
func awaitZombie(pid int) {
	for {
		info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
		if err != nil || int(info.Proc.P_pid) != pid || info.Proc.P_stat == zombieStatus {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// WatchIdentity is WatchExit for any process.
func WatchIdentity(id Identity) (wait func()) { return WatchExit(id.PID) }
