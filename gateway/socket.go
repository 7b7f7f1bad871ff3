package gateway

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/process/tree"
)

// listenSocket creates a Unix socket that only this user, and the members of group unless it is "", may open. It
// replaces a socket without a listener.
func listenSocket(path, group string) (*socketListener, error) {
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return nil, api.Errorf(api.CodeUnavailable, "another gateway listens on %s; give each agent its own state folder",
			path)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, api.Errorf(api.CodeInvalid, "%s exists and is not a socket; remove it and start again", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the stale socket %s: %w", path, err)
		}
	}
	gid, err := lookUpGroup(group)
	if err != nil {
		return nil, err
	}
	listener, err := listenPrivately(path, gid)
	if errors.Is(err, unix.EINVAL) && len(path) > maxSocketPath {
		return nil, api.Errorf(api.CodeInvalid,
			"the path of the gateway's socket has %d bytes, more than this system allows: %s; use a shorter --state-dir",
			len(path), path)
	}
	if err != nil {
		return nil, api.Errorf(api.CodeUnavailable,
			"cannot listen on the socket %s; check that its disk has space and is writable: %w", path, err)
	}
	return listener, nil
}

// listenPrivately creates a socket that no other user can open, not even before its mode is set: it creates it in a
// private folder and moves it into place. With a group, -1 for none, its members may open the socket, and pass the
// folder that it is in.
func listenPrivately(path string, gid int) (*socketListener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	defer os.RemoveAll(dir)
	created := filepath.Join(dir, "s")
	var listener *net.UnixListener
	if err == nil && len(created) <= maxSocketPath {
		listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: created, Net: "unix"})
	}
	if listener == nil { // too long, or too full a disk, for the detour: until the mode is set, the folder protects it
		_ = os.RemoveAll(dir)
		created = path
		listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: created, Net: "unix"})
	}
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	if err = grantSocket(created, filepath.Dir(path), gid); err == nil {
		err = os.Rename(created, path)
	}
	if err != nil {
		listener.Close()
		return nil, err
	}
	return &socketListener{UnixListener: listener, path: path}, nil
}

// lookUpGroup returns the number of a group, -1 for "".
func lookUpGroup(group string) (int, error) {
	if group == "" {
		return -1, nil
	}
	if gid, err := strconv.ParseUint(group, 10, 31); err == nil {
		return int(gid), nil
	}
	found, err := user.LookupGroup(group)
	if err != nil {
		return -1, api.Errorf(api.CodeInvalid, "--socket-group is %q, which is not a group of this host: %w", group, err)
	}
	return strconv.Atoi(found.Gid)
}

// grantSocket sets the mode of a socket, and lets a group pass the folder that it will be in; the folder's files keep
// their own modes.
func grantSocket(socket, folder string, gid int) error {
	if gid < 0 {
		return os.Chmod(socket, 0o600)
	}
	// no file in it is the group's
	return errors.Join(os.Chown(socket, -1, gid), os.Chmod(socket, 0o660), os.Chown(folder, -1, gid),
		os.Chmod(folder, 0o710))
}

// maxSocketPath is a path length that fits into sockaddr_un on every Unix.
const maxSocketPath = 100

// socketListener removes its file when it closes, or before.
type socketListener struct {
	*net.UnixListener
	path    string
	once    sync.Once
	removed error
}

// unlink removes the file, so that no new client finds the socket.
func (l *socketListener) unlink() error {
	l.once.Do(func() { // a second time, the file would be a successor's
		if err := os.Remove(l.path); !os.IsNotExist(err) {
			l.removed = err
		}
	})
	return l.removed
}

func (l *socketListener) Close() error { return errors.Join(l.unlink(), l.UnixListener.Close()) }

// socketPeer is the process that opened a connection over the Unix socket.
type socketPeer struct {
	known bool // the kernel named it, and it was alive when its connection was accepted
	uid   uint32
	id    tree.Identity
}

// peerOf asks the kernel who opened a connection over a Unix socket.
func peerOf(c net.Conn) *socketPeer {
	peer := &socketPeer{}
	if conn, ok := c.(*net.UnixConn); ok {
		if pid, uid, ok := tree.PeerOf(conn); ok {
			peer.uid = uid
			peer.id, peer.known = tree.Identify(pid)
		}
	}
	return peer
}

// socketPeers decides what processes may do over the Unix socket.
type socketPeers struct {
	inWorker func(pid int) bool // reports whether a process belongs to a worker
	group    bool               // members of a group may open the socket
}

// principal is the client behind a connection: this user and root have every right, members of the socket's group those
// of a client except sessions, and a worker and its descendants none. A process that has ended is nobody, because its
// number may be another's.
func (s socketPeers) principal(p socketPeer) *access.Principal {
	principal := &access.Principal{Name: fmt.Sprint("uid ", p.uid), MaxPriority: access.MaxPriority}
	switch own := p.uid == uint32(os.Geteuid()) || p.uid == 0; {
	case !p.known, p.id.PID != os.Getpid() && s.inWorker(p.id.PID), !p.id.Exists():
		principal.Name = "a worker's process"
	case own:
		principal.Rights = access.All
	case s.group:
		principal.Rights = access.Call | access.Lease | access.Read
	}
	return principal
}
