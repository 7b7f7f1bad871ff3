package gateway

import (
	"time"

	"golang.org/x/sys/unix"
)

// silenceOption of TCP bounds, in milliseconds, how long a client may acknowledge nothing of what was sent.
const (
	silenceOption = unix.TCP_USER_TIMEOUT
	silenceUnit   = time.Millisecond
)

// credentials are those of the process that connected to a Unix socket.
func credentials(fd int) (pid int, uid uint32, ok bool) {
	found, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, 0, false
	}
	return int(found.Pid), found.Uid, true
}
