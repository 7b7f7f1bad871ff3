package gateway

import "golang.org/x/sys/unix"

// credentials are those of the process that connected to a Unix socket.
func credentials(fd int) (pid int, uid uint32, ok bool) {
	found, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, 0, false
	}
	pid, err = unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	return pid, found.Uid, err == nil
}
