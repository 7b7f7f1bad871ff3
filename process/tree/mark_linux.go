package tree

import (
	"bytes"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// noMark is the limit of processes that descend from no worker. It leaves half of the numbers of a mark to agents that
// run within a worker.
const noMark = Mark(1) << 62

// ownMark is the number that marks must be below: this program's own limit.
var ownMark = sync.OnceValue(func() Mark {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_LOCKS, &limit); err != nil {
		return 0
	}
	self, err := readLimit(unix.Getpid())
	if err != nil || self != min(Mark(limit.Max), noMark) {
		return 0 // a system that does not show limits
	}
	return self
})

// readMark returns the mark of a process; 0 if it descends from no worker of this program, or is gone.
func readMark(pid int) (Mark, error) {
	if !HasMarks() {
		return 0, nil
	}
	limit, err := readLimit(pid)
	if err != nil {
		return 0, ignoreGone(err)
	}
	if limit == noMark || limit == ownMark() {
		return 0, nil
	}
	return limit, nil
}

// limitName begins the line of /proc/<pid>/limits that holds marks; the soft and the hard limit follow.
var limitName = []byte("Max file locks ")

// readLimit returns the limit of a process, at most noMark; noMark for a process that shows none, such as a zombie.
func readLimit(pid int) (Mark, error) {
	var buffer [4096]byte
	data, err := readProc(pid, "limits", buffer[:])
	if err != nil {
		return 0, err
	}
	_, line, found := bytes.Cut(data, limitName)
	fields := bytes.Fields(line[:max(bytes.IndexByte(line, '\n'), 0)])
	if !found || len(fields) < 2 {
		return noMark, nil
	}
	hard, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil { // unlimited
		return noMark, nil
	}
	return min(Mark(hard), noMark), nil
}
