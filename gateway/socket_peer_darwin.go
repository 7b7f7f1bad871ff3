package gateway

import (
	"time"

	"golang.org/x/sys/unix"
)

// silenceOption of TCP bounds, in seconds, how long a client may acknowledge nothing of what was sent.
const (
	silenceOption = unix.TCP_RXT_CONNDROPTIME
	silenceUnit   = time.Second
)

// credentials are those of the process that connected to a Unix socket.
func credentials(fd int) (pid int, uid uint32, ok bool) {
	found, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, 0, false
	}
	pid, err = unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	return pid, found.Uid, err == nil
}
