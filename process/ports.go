package process

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// portAllocator tracks the ports assigned to processes, since a port that nobody listens on yet looks free to the next process.
type portAllocator struct {
	mu    sync.Mutex
	inUse map[int]bool
}

// portAttempts is how many ports an allocation tries.
const portAttempts = 200

// minPortRange is how many ports outside the ephemeral range are worth choosing from.
const minPortRange = 1000

// allocate returns a free port of 127.0.0.1. Until the program listens on it another program may take it; so it is none that the system
// itself gives to outgoing connections and to programs that ask for any port, as far as there are others.
func (a *portAllocator) allocate() (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inUse == nil {
		a.inUse = make(map[int]bool)
	}
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
	return 0, errors.New("find a free port for the program: all free ports of 127.0.0.1 that were tried are assigned to other workers")
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
	if a.inUse == nil {
		a.inUse = make(map[int]bool)
	}
	a.inUse[port] = true
}

func (a *portAllocator) release(port int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.inUse, port)
}
