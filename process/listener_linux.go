package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tempool/tempool/process/tree"
)

// lastEphemeralPort returns the last port that the kernel chooses itself; 0 if it does not say.
func lastEphemeralPort() int {
	data, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0
	}
	var first, last int
	if _, err := fmt.Sscan(string(data), &first, &last); err != nil {
		return 0
	}
	return last
}

// tcpListener is a listening socket.
type tcpListener struct {
	inode string
	uid   string
}

// ownsPort reports whether every socket that accepts connections to the port of 127.0.0.1 belongs to the process tree.
// It reports true if the system does not report it.
func (p *Process) ownsPort(port int) bool {
	listeners, err := listenersOn(port)
	if err != nil || len(listeners) == 0 {
		return true
	}
	table, err := tree.ScanTable(nil)
	if err != nil {
		return true
	}
	sockets, readable := make(map[string]bool), true
	for _, member := range table.Members(p.treeKey()) {
		readable = collectSockets(member.PID, sockets) && readable
	}
	for _, listener := range listeners {
		if !sockets["socket:["+listener.inode+"]"] && (readable || listener.uid != p.uid()) {
			return false
		}
	}
	return true
}

// uid is the user of the program.
func (p *Process) uid() string {
	if c := p.plan.credentials; c != nil {
		return strconv.FormatUint(uint64(c.UID), 10)
	}
	return strconv.Itoa(os.Geteuid())
}

// collectSockets adds the names of a process's open descriptors. It reports false if the agent may not read them.
func collectSockets(pid int, sockets map[string]bool) (readable bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return !errors.Is(err, fs.ErrPermission)
	}
	for _, entry := range entries {
		if name, err := os.Readlink(filepath.Join(dir, entry.Name())); err == nil {
			sockets[name] = true
		}
	}
	return true
}

const (
	tcpListening = "0A"
	// The local addresses, as /proc/net/tcp and tcp6 show them, that accept connections to 127.0.0.1.
	loopbackV4, anyV4    = "0100007F", "00000000"
	loopbackV4In6, anyV6 = "0000000000000000FFFF00000100007F", "00000000000000000000000000000000"
)

// listenersOn reads the sockets that listen on the port, see proc_pid_net(5).
func listenersOn(port int) ([]tcpListener, error) {
	var found []tcpListener
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line)
			if len(fields) < 10 || fields[3] != tcpListening {
				continue
			}
			addr, hex, _ := strings.Cut(fields[1], ":")
			number, err := strconv.ParseUint(hex, 16, 16)
			if err != nil || int(number) != port {
				continue
			}
			switch addr {
			case loopbackV4, anyV4, loopbackV4In6, anyV6:
				found = append(found, tcpListener{inode: fields[9], uid: fields[7]})
			}
		}
	}
	return found, nil
}
