package tree

import "syscall"

// PeerOf returns the process at the other end of a connection over a Unix socket, which connected or listens, and its
// user, as the kernel names them.
func PeerOf(conn syscall.Conn) (pid int, uid uint32, known bool) {
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { pid, uid, known = credentials(int(fd)) })
	}
	return pid, uid, known && err == nil
}
