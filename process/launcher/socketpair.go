package launcher

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// SocketPair returns a connected pair of stream sockets. Both are close-on-exec. ours is served by the runtime's
// poller; theirs, for a child, is blocking.
func SocketPair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock() // no fork between the creation and close-on-exec
	defer syscall.ForkLock.RUnlock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket-child"), nil
}
