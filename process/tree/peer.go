package tree

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// PeerOf returns the process at the other end of a connection over a Unix socket, which connected or listens, and its
// user, as the kernel names them.
func PeerOf(conn syscall.Conn) (pid int, uid uint32, known bool) {
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { pid, uid, known = credentials(int(fd)) })
	}
	return pid, uid, known && err == nil
}

// PeerName returns the path to which the other end of a connection over a Unix socket was bound; "" for none.
func PeerName(conn syscall.Conn) (path string) {
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			addr, _ := unix.Getpeername(int(fd))
			if bound, ok := addr.(*unix.SockaddrUnix); ok {
				path = bound.Name
			}
		})
	}
	return path
}
