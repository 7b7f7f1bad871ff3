package gateway

import (
	"net"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/process/tree"
)

// peerOf asks the kernel who opened a connection over a Unix socket.
func peerOf(c net.Conn) *socketPeer {
	peer := &socketPeer{}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return peer
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return peer
	}
	_ = raw.Control(func(fd uintptr) {
		if found, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			peer.uid = found.Uid
			peer.id, peer.known = tree.Identify(int(found.Pid))
		}
	})
	return peer
}
