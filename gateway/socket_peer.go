//go:build unix

package gateway

import (
	"fmt"
	"net"
	"os"

	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/process/tree"
)

// socketPeer is the process that opened a connection over the Unix socket.
type socketPeer struct {
	known bool // the kernel named it, and it was alive when its connection was accepted
	uid   uint32
	id    tree.Identity
}

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
		if pid, uid, ok := credentials(int(fd)); ok {
			peer.uid = uid
			peer.id, peer.known = tree.Identify(pid)
		}
	})
	return peer
}

// socketPeers decides what processes may do over the Unix socket.
type socketPeers struct {
	inWorker func(pid int) bool // reports whether a process belongs to a worker; nil knows no workers
	group    bool               // members of a group may open the socket
}

// principal is the client behind a connection: this user and root have every right, members of the socket's group those
// of a client except sessions, and a worker and its descendants none. A process that has ended is nobody, because its
// number may be another's.
func (s socketPeers) principal(p socketPeer) *access.Principal {
	principal := &access.Principal{Name: fmt.Sprint("uid ", p.uid), MaxPriority: access.MaxPriority}
	switch own := p.uid == uint32(os.Geteuid()) || p.uid == 0; {
	case !p.known, s.inWorker != nil && p.id.PID != os.Getpid() && s.inWorker(p.id.PID), !p.id.Exists():
		principal.Name = "a worker's process"
	case own:
		principal.Rights = access.All
	case s.group:
		principal.Rights = access.Call | access.Lease | access.Read
	}
	return principal
}
