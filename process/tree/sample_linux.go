package tree

import (
	"bytes"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// PSSOf reads the proportional set size of one process: each page counts by the share of processes that map it. A
// process that has ended has
// 0. It is not readable if the system or its owner does not permit it.
func PSSOf(id Identity) (bytes int64, readable bool) {
	data, err := readProc(id.PID, "smaps_rollup", make([]byte, 4096))
	switch {
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.ENOENT) && !id.Exists():
		return 0, true
	case err != nil:
		return 0, false
	}
	return 1024 * numberAfter(data, "Pss:"), true
}

// UsageOf reads the usage of one process from /proc, except what its entry has. A value that may not be read is 0.
func UsageOf(id Identity) Usage {
	buffer := make([]byte, 4096)
	var used Usage
	if data, err := readProc(id.PID, "io", buffer); err == nil {
		used.read = numberAfter(data, "read_bytes:")
		used.wrote = numberAfter(data, "write_bytes:")
	}
	used.openFiles = countOpenFiles(id.PID)
	return used
}

// numberAfter returns the number after a name at the start of a line; 0 if there is none.
func numberAfter(data []byte, name string) int64 {
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

// countOpenFiles uses the size of the directory, which is the number of descriptors since Linux 6.2, and counts on
// older kernels.
func countOpenFiles(pid int) int {
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
