package tree

import (
	"bytes"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/api"
)

// networkBuffer holds the counters of some hundred interfaces.
const networkBuffer = 16 << 10

// ownNetwork is the network namespace of this program; 0 if that is not known.
var ownNetwork = sync.OnceValue(func() uint64 { return networkNamespace("self") })

func networkNamespace(process string) uint64 {
	var stat unix.Stat_t
	if unix.Stat("/proc/"+process+"/ns/net", &stat) != nil {
		return 0
	}
	return stat.Ino
}

// interfacesOf reads the interfaces, but loopback, of the network namespaces that are the tree's own: of the namespace
// of its root, or of those of all members if the root is the client of a container engine. There are none in the
// namespace of this program, whose counters are those of the host. It returns nil if the kernel does not report it.
func interfacesOf(members []*Entry, key Key) map[networkInterface]api.NetworkBytes {
	if ownNetwork() == 0 {
		return nil
	}
	var found map[networkInterface]api.NetworkBytes
	read := map[uint64]bool{0: true, ownNetwork(): true}
	for _, m := range members {
		if m.Identity != key.Root && !key.OfEngine {
			continue
		}
		namespace := networkNamespace(strconv.Itoa(m.PID))
		if read[namespace] {
			continue
		}
		counters, known := readInterfaces(m.PID)
		if !known || !m.Identity.Exists() { // otherwise they may be those of a stranger
			continue
		}
		read[namespace] = true
		for name, bytes := range counters {
			if found == nil {
				found = make(map[networkInterface]api.NetworkBytes)
			}
			if len(found) == maxInterfaces {
				return nil
			}
			found[networkInterface{namespace, name}] = bytes
		}
	}
	return found
}

// readInterfaces reads the counters of the interfaces in a process's network namespace, except loopback. They are not
// known if there are too many.
func readInterfaces(pid int) (counters map[string]api.NetworkBytes, known bool) {
	data, err := readProc(pid, "net/dev", make([]byte, networkBuffer))
	if err != nil || len(data) == networkBuffer {
		return nil, false
	}
	return parseInterfaces(data), true
}

// parseInterfaces parses /proc/net/dev, see proc_pid_net(5): two lines of titles, and a line for each interface, whose
// name ends at the colon.
func parseInterfaces(data []byte) map[string]api.NetworkBytes {
	const received, sent = 0, 8 // the columns of bytes
	counters := make(map[string]api.NetworkBytes)
	for line := range bytes.Lines(data) {
		name, rest, isInterface := bytes.Cut(line, []byte(":"))
		columns := bytes.Fields(rest)
		if !isInterface || len(columns) <= sent {
			continue
		}
		in, badIn := strconv.ParseInt(string(columns[received]), 10, 64)
		out, badOut := strconv.ParseInt(string(columns[sent]), 10, 64)
		if name := string(bytes.TrimSpace(name)); name != "lo" && badIn == nil && badOut == nil {
			counters[name] = api.NetworkBytes{ReceivedBytes: in, SentBytes: out}
		}
	}
	return counters
}
