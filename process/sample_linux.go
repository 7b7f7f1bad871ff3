package process

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// usageOf reads what /proc tells about one process alone. What may not be read is 0.
func usageOf(id identity) usage {
	buffer := make([]byte, 4096)
	var used usage
	if data, err := readProc(id.PID, "smaps_rollup", buffer); err == nil {
		used.rss = 1024 * field(data, "Rss:")
		used.pss = 1024 * field(data, "Pss:")
	}
	if data, err := readProc(id.PID, "io", buffer); err == nil {
		used.read = field(data, "read_bytes:")
		used.wrote = field(data, "write_bytes:")
	}
	used.openFiles = openFiles(id.PID)
	return used
}

// field returns the number after a name at the start of a line; 0 if there is none.
func field(data []byte, name string) int64 {
	for line := range bytes.Lines(data) {
		if rest, found := bytes.CutPrefix(line, []byte(name)); found {
			words := bytes.Fields(rest)
			if len(words) == 0 {
				return 0
			}
			n, _ := strconv.ParseInt(string(words[0]), 10, 64)
			return n
		}
	}
	return 0
}

// openFiles asks for the folder's size, which kernels from 6.2 on set to the number of descriptors, before it counts.
func openFiles(pid int) int {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	var stat unix.Stat_t
	if unix.Stat(dir, &stat) == nil && stat.Size > 0 {
		return int(stat.Size)
	}
	file, err := os.Open(dir)
	if err != nil {
		return 0
	}
	defer file.Close()
	names, _ := file.Readdirnames(-1)
	return len(names)
}
