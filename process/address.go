package process

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

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

// socketDirPrefix begins the names of such directories that are in the system's temporary directory.
const socketDirPrefix = "tempool-"

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

// makeSocketDir makes the directory in the state directory, or in the system's temporary directory if the path would be
// too long for a socket or out of reach for another user. One that it has made it returns even with an error.
func (s *Supervisor) makeSocketDir(credentials *launcher.Credentials) (string, error) {
	dir := filepath.Join(s.state.path, socketsName, tree.RandomHex(4))
	var err error
	if credentials != nil || len(dir)+len("/s") > maxSocketPath {
		dir, err = os.MkdirTemp("", socketDirPrefix)
	} else {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("%w: make a directory for the program's socket: %w", ErrExhausted, err)
	}
	if credentials != nil {
		if err = os.Chown(dir, int(credentials.UID), int(credentials.GID)); err != nil {
			return dir, fmt.Errorf("give the directory of the program's socket to its user: %w", err)
		}
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

// portAllocator tracks the ports assigned to processes, since a port that nobody listens on yet looks free to the next
// process.
type portAllocator struct {
	mu    sync.Mutex
	inUse map[int]bool
}

// portAttempts is how many ports an allocation tries.
const portAttempts = 200

// minPortRange is how many ports outside the ephemeral range are worth choosing from.
const minPortRange = 1000

// allocate returns a free port of 127.0.0.1. Until the program listens on it another program may take it; so it is none
// that the system itself gives to outgoing connections and to programs that ask for any port, as far as there are
// others.
func (a *portAllocator) allocate() (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first, last := quietPorts(lastEphemeralPort())
	for attempt := range portAttempts {
		wanted := 0 // any
		if first > 0 && attempt < portAttempts/2 {
			wanted = first + rand.IntN(last-first+1)
		}
		listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(wanted)))
		if err != nil && wanted == 0 {
			return 0, fmt.Errorf("find a free port for the program: %w", err)
		}
		if err != nil {
			continue
		}
		port := listener.Addr().(*net.TCPAddr).Port
		listener.Close()
		if !a.inUse[port] {
			a.inUse[port] = true
			return port, nil
		}
	}
	return 0, errors.New("find a free port for the program: all free ports of 127.0.0.1 that were tried are assigned to " +
		"other workers")
}

// quietPorts returns the range above the ephemeral ports; 0, 0 if it is small or the ephemeral range is unknown.
func quietPorts(ephemeralLast int) (first, last int) {
	if ephemeralLast == 0 || 65535-ephemeralLast < minPortRange {
		return 0, 0
	}
	return ephemeralLast + 1, 65535
}

// take assigns a port that a process uses already.
func (a *portAllocator) take(port int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inUse[port] = true
}

func (a *portAllocator) release(port int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.inUse, port)
}
