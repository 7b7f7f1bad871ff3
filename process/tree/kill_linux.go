package tree

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/internal/sleep"
)

// openPidfd returns nil on kernels without pidfds.
func openPidfd(pid int) *os.File {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "pidfd")
}

// atHighPriority runs f on a thread of its own at the highest priority that this program may set. The thread ends with
// f.
func atHighPriority(f func()) {
	<-sleep.Done(func() {
		runtime.LockOSThread() // never unlocked: the runtime discards the thread when the goroutine ends
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20)
		f()
	})
}

// credentials are those of the process that connected to a Unix socket.
func credentials(fd int) (pid int, uid uint32, ok bool) {
	found, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, 0, false
	}
	return int(found.Pid), found.Uid, true
}
