package devserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Chosen ports are below the range of outgoing connections (from 32768 on Linux, 49152 on macOS). Otherwise a client
// that reconnects while the server is down could get the server's port as its own and block the restart.
const (
	firstFreePort = 20000
	lastFreePort  = 29999
)

func hostPort(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// choosePorts returns options with ports: free ones where they have none. It fails if another one is taken.
func choosePorts(options Options) (Options, error) {
	for _, port := range []*int{&options.Port, &options.UIPort} {
		switch {
		case *port == NoUI && port == &options.UIPort:
		case *port == 0:
			free, err := freePort()
			if err != nil {
				return options, err
			}
			*port = free
		default:
			if err := checkPort(*port); err != nil {
				return options, err
			}
		}
	}
	return options, nil
}

func freePort() (int, error) {
	const attempts = 100
	var err error
	for range attempts {
		port := firstFreePort + rand.IntN(lastFreePort-firstFreePort+1)
		if err = checkPort(port); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port for the Temporal server from %d to %d: %w", firstFreePort, lastFreePort, err)
}

func checkPort(port int) error {
	if port < 1 || port > 65535 {
		return fmt.Errorf("invalid port %d for the Temporal server; choose one from 1 to 65535, or 0 for a free one", port)
	}
	listener, err := net.Listen("tcp", hostPort(port))
	if err != nil {
		return fmt.Errorf("the Temporal server cannot listen on port %d, which is taken; stop the program that has it "+
			"(lsof -i :%d shows it) or choose another port: %w",
			port, port, err)
	}
	return listener.Close()
}
