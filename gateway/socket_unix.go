//go:build unix

package gateway

import (
	"net"
	"os"
	"path/filepath"
	"sync"
)

// listenPrivately creates a socket that no other user can open, not even before its mode is set: it creates it in a private folder and
// moves it into place.
func listenPrivately(path string) (net.Listener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	created := filepath.Join(dir, "s")
	if len(created) > maxSocketPath {
		created = path // too long for the detour; until the mode is set, only the folder protects the socket
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: created, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	if err = os.Chmod(created, 0o600); err == nil {
		err = os.Rename(created, path)
	}
	if err != nil {
		listener.Close()
		return nil, err
	}
	return &socketListener{Listener: listener, path: path}, nil
}

// maxSocketPath is a path length that fits into sockaddr_un on every Unix.
const maxSocketPath = 100

// socketListener removes its file when it closes.
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
