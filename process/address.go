package process

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// address is where a program of protocol none may listen: on the port or on the socket, as it likes.
type address struct {
	port   int    // 0: the zero address
	socket string // path
	dir    string // holds nothing but the socket
}

// maxSocketPath is the longest path that fits into sockaddr_un everywhere.
const maxSocketPath = 100

// portBook keeps the ports that processes were given, since a port that nobody listens on yet looks free to the next one.
type portBook struct {
	mu    sync.Mutex
	given map[int]bool
}

// choose returns a port on 127.0.0.1 that is free now.
func (b *portBook) choose() (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.given == nil {
		b.given = make(map[int]bool)
	}
	for range 100 {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return 0, fmt.Errorf("choose a port for the program: %w", err)
		}
		port := listener.Addr().(*net.TCPAddr).Port
		listener.Close()
		if !b.given[port] {
			b.given[port] = true
			return port, nil
		}
	}
	return 0, fmt.Errorf("choose a port for the program: every port of 127.0.0.1 offered is given to another worker")
}

func (b *portBook) release(port int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.given, port)
}

// chooseAddress picks both ways to listen. The socket's folder belongs to the program's account.
func (s *Supervisor) chooseAddress(who *account) (address, error) {
	port, err := s.ports.choose()
	if err != nil {
		return address{}, err
	}
	a := address{port: port}
	if a.dir, err = s.socketDir(who); err != nil {
		s.releaseAddress(a)
		return address{}, err
	}
	a.socket = filepath.Join(a.dir, "s")
	return a, nil
}

// socketDir makes the folder in the state folder, unless its path is too long for sockets or another account could not reach it.
func (s *Supervisor) socketDir(who *account) (string, error) {
	dir := filepath.Join(s.folder.path, socketsName, randomHex(4))
	var err error
	if who != nil || len(dir)+len("/s") > maxSocketPath {
		dir, err = os.MkdirTemp("", "tempool-")
	} else {
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil && who != nil {
		err = os.Chown(dir, int(who.UID), int(who.GID))
	}
	if err != nil {
		return "", fmt.Errorf("make a folder for the program's socket: %w", err)
	}
	return dir, nil
}

// releaseAddress undoes chooseAddress. It may be given the zero address.
func (s *Supervisor) releaseAddress(a address) {
	if a.port != 0 {
		s.ports.release(a.port)
	}
	if a.dir != "" {
		if err := os.RemoveAll(a.dir); err != nil {
			s.logger.Warn("the folder of a program's socket stays", "folder", a.dir, "error", err)
		}
	}
}

func (a address) tcp() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(a.port)) }
