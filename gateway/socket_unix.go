//go:build unix

package gateway

import (
	"net"
	"os"
	"path/filepath"
	"sync"
)

// listenPrivately makes a socket that nobody else can open, not even in the moment before its mode is set: it is made in a folder
// of its own and moved into place.
func listenPrivately(path string) (net.Listener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "s")
	if len(made) > maxSocketPath {
		made = path // there is no room for the detour; the folder's own mode has to do for a moment
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	if err = os.Chmod(made, 0o600); err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		listener.Close()
		return nil, err
	}
	return &socketListener{Listener: listener, path: path}, nil
}

// maxSocketPath is the longest path that fits into sockaddr_un everywhere.
const maxSocketPath = 100

// socketListener removes its file in the end.
type socketListener struct {
	net.Listener
	path   string
	once   sync.Once
	closed error
}

func (l *socketListener) Close() error {
	l.once.Do(func() { // a second time, the file would be a successor's
		l.closed = l.Listener.Close()
		if err := os.Remove(l.path); l.closed == nil && !os.IsNotExist(err) {
			l.closed = err
		}
	})
	return l.closed
}
