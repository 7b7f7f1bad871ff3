package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// SelfPath returns a path that executes the running program again, even if its file was replaced.
func SelfPath() (string, error) { return "/proc/self/exe", nil }

// NumberSpace names the boot of the machine and the PID namespace of this program. Numbers of processes from another
// one mean nothing: they may be those of bystanders. The kernel uses the number of a namespace again once that has
// ended; the start of its first process distinguishes the two. It is "", which names nothing, if the boot cannot be
// read.
func NumberSpace() string { return numberSpace("/proc") }

func numberSpace(proc string) string {
	boot, err := os.ReadFile(proc + "/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	namespace, _ := os.Readlink(proc + "/self/ns/pid") // unknown in some sandboxes
	var since uint64
	if first, err := ReadEntry(1); err == nil && first != nil {
		since = first.Start
	}
	return fmt.Sprintf("%s %s %d", strings.TrimSpace(string(boot)), namespace, since)
}

// clockTick is the kernel's USER_HZ, which is 100 on every architecture Go runs on.
const clockTick = 10 * time.Millisecond

var pageSize = int64(os.Getpagesize())

// listPIDs lists /proc.
func listPIDs() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("read the process table: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("read the process table: %w", err)
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// ReadEntry reads one process; nil if there is none, or it is a kernel thread. Its cookie stays empty.
func ReadEntry(pid int) (*Entry, error) {
	var buffer [1024]byte
	data, err := readProc(pid, "stat", buffer[:])
	if err != nil {
		return nil, ignoreGone(err)
	}
	e, ok := parseStat(data)
	if !ok || e.PID == kthreadd || e.Parent == kthreadd {
		return nil, nil
	}
	return e, nil
}

// ignoreGone returns nil for errors that mean that a process is gone or not ours to read.
func ignoreGone(err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return fmt.Errorf("read the process table: %w", err)
}

// kthreadd is the PID of the parent of all kernel threads, -1 if none is visible: in a PID namespace any process may
// have PID 2, so it counts only without a parent.
var kthreadd = func() int {
	data, err := readProc(2, "stat", make([]byte, 4096))
	if e, ok := parseStat(data); err == nil && ok && e.Parent == 0 {
		return 2
	}
	return -1
}()

// readProc reads /proc/<pid>/<name> into buffer and drops what does not fit. It avoids os.File, which would try to
// register each file with the poller.
func readProc(pid int, name string, buffer []byte) ([]byte, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n := 0
	for n < len(buffer) {
		got, err := unix.Read(fd, buffer[n:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if got == 0 {
			break
		}
		n += got
	}
	return buffer[:n], nil
}

// parseStat parses a line of /proc/<pid>/stat, see proc_pid_stat(5). The command in parentheses may contain any byte,
// so the fields are counted from the last closing parenthesis.
func parseStat(data []byte) (*Entry, bool) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 1 || end < open {
		return nil, false
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(data[:open])))
	if err != nil {
		return nil, false
	}
	fields, n := statFields(data)
	if n < 22 {
		return nil, false
	}
	number := func(field int) int64 { // numbered as in the manual page, where the state is field 3
		n, _ := strconv.ParseInt(string(fields[field-3]), 10, 64)
		return n
	}
	start, err := strconv.ParseUint(string(fields[22-3]), 10, 64)
	if err != nil {
		return nil, false
	}
	state := string(fields[0])
	return &Entry{
		Identity: Identity{PID: pid, Start: start},
		Parent:   int(number(4)), pgid: int(number(5)), Session: int(number(6)),
		Zombie:  state == "Z" || state == "X" || state == "x",
		Stopped: state == "T" || state == "t",
		Blocked: state == "D",
		threads: int(number(20)),
		RSS:     number(24) * pageSize,
		CPU:     time.Duration(number(14)+number(15)+number(16)+number(17)) * clockTick,
	}, true
}

// statFields returns the fields from the state to the last one used here, and how many there are. It allocates nothing,
// since each read of the process table parses a line per process.
func statFields(stat []byte) (fields [26 - 2][]byte, n int) {
	for field := range bytes.FieldsSeq(stat[bytes.LastIndexByte(stat, ')')+1:]) {
		if n == len(fields) {
			break
		}
		fields[n] = field
		n++
	}
	return fields, n
}

var environBuffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// readCookie reads the cookie from a process's environment; "" if there is none or it may not be read. It fails with
// errExec while the process is in execve: its environment then reads as empty.
func readCookie(pid int) (string, error) {
	buffer := environBuffers.Get().(*[]byte)
	defer environBuffers.Put(buffer)
	for reads := 1; ; reads++ {
		environ, err := readProc(pid, "environ", *buffer)
		if err != nil {
			return "", ignoreGone(err)
		}
		if len(environ) > 0 {
			return parseCookie(environ), nil
		}
		if reads == maxEmptyReads {
			return "", nil
		}
		var stat [1024]byte
		data, err := readProc(pid, "stat", stat[:])
		if err != nil {
			return "", ignoreGone(err)
		}
		switch hasMemory, executing := executionState(data); {
		case executing:
			return "", errExec
		case !hasMemory: // a kernel thread, or exiting
			return "", nil
		}
	}
}

// maxEmptyReads is how many reads in a row must find the environment empty, with the process outside execve in between,
// before readCookie believes it: a process that calls execve in a loop can be in it at two reads in a row, about once
// in 10,000 times.
const maxEmptyReads = 6

// executionState reports from a line of /proc/<pid>/stat whether the process has memory, and whether execve has not yet
// loaded the program, its arguments and its environment into it. An exiting process has no memory.
func executionState(stat []byte) (hasMemory, executing bool) {
	fields, n := statFields(stat)
	if n < len(fields) {
		return true, false
	}
	// numbered as in proc_pid_stat(5), where the state is field 3
	memory, code := string(fields[23-3]), string(fields[26-3])
	return memory != "0", memory != "0" && code == "0"
}
