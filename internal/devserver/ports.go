package devserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Chosen ports lie below the range from which systems take the ports of outgoing connections (from 32768 on Linux,
// 49152 on macOS): a client that tries to reconnect while the server is away could otherwise be given the very port it
// calls, and would keep the restarted server from listening on it.
const (
	firstFreePort = 20000
	lastFreePort  = 29999
)

func hostPort(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func freePort() (int, error) {
	const attempts = 100
	var err error
	for range attempts {
		port := firstFreePort + rand.IntN(lastFreePort-firstFreePort+1)
		if err = checkPort(port); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port found for the Temporal server between %d and %d: %w", firstFreePort, lastFreePort, err)
}

func checkPort(port int) error {
	if port < 1 || port > 65535 {
		return fmt.Errorf("%d is no port for the Temporal server; choose one from 1 to 65535, or 0 for a free one", port)
	}
	listener, err := net.Listen("tcp", hostPort(port))
	if err != nil {
		return fmt.Errorf("port %d is taken, so the Temporal server cannot listen there; stop the program that has it (lsof -i :%d names it) or choose another port: %w",
			port, port, err)
	}
	return listener.Close()
}
