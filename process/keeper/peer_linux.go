package keeper

import (
	"net"

	"golang.org/x/sys/unix"
)

type peer struct{ pid, uid int }

// peerOf returns the process at the other end of a connection.
func peerOf(conn *net.UnixConn) (peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var credentials *unix.Ucred
	var readErr error
	err = raw.Control(func(fd uintptr) {
		credentials, readErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err == nil {
		err = readErr
	}
	if err != nil {
		return peer{}, err
	}
	return peer{int(credentials.Pid), int(credentials.Uid)}, nil
}

// protect forbids other processes of this user to take the descriptors.
func protect() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
