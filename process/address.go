package process

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tempool/tempool/process/launcher"
	"github.com/tempool/tempool/process/tree"
)

// address is where a program of protocol none may listen: on the port or on the socket.
type address struct {
	port   int    // 0 in the zero address
	socket string // path
	dir    string // holds only the socket
}

// maxSocketPath is the longest path that fits into sockaddr_un on all systems.
const maxSocketPath = 100

// socketFile is the name of a program's socket in its directory.
const socketFile = "s"

// allocateAddress allocates a port and a socket directory owned by the program's user.
func (s *Supervisor) allocateAddress(credentials *launcher.Credentials) (address, error) {
	port, err := s.ports.allocate()
	if err != nil {
		return address{}, err
	}
	a := address{port: port}
	if a.dir, err = s.makeSocketDir(credentials); err != nil {
		s.releaseAddress(a)
		return address{}, err
	}
	a.socket = filepath.Join(a.dir, socketFile)
	return a, nil
}

// makeSocketDir makes the directory in the state directory, or in the system's temporary directory if the path would be too long for a
// socket or out of reach for another user.
func (s *Supervisor) makeSocketDir(credentials *launcher.Credentials) (string, error) {
	dir := filepath.Join(s.state.path, socketsName, tree.RandomHex(4))
	var err error
	if credentials != nil || len(dir)+len("/s") > maxSocketPath {
		dir, err = os.MkdirTemp("", "tempool-")
	} else {
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil && credentials != nil {
		err = os.Chown(dir, int(credentials.UID), int(credentials.GID))
	}
	if err != nil {
		return "", fmt.Errorf("make a directory for the program's socket: %w", err)
	}
	return dir, nil
}

// releaseAddress undoes allocateAddress. It does nothing for the zero address.
func (s *Supervisor) releaseAddress(a address) {
	if a.port != 0 {
		s.ports.release(a.port)
	}
	if a.dir != "" {
		if err := os.RemoveAll(a.dir); err != nil {
			s.logger.Warn("cannot remove the directory of a program's socket", "dir", a.dir, "error", err)
		}
	}
}

func (a address) tcp() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(a.port)) }
