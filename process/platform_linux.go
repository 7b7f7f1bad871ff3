package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func supported() error { return nil }

// selfExe starts the running program anew even when its file was replaced meanwhile.
func selfExe() (string, error) { return "/proc/self/exe", nil }

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

// readRow reads one process; nil if there is none, or it is a kernel thread.
func readRow(pid int) (*row, error) {
	var buffer [1024]byte
	data, err := readProc(pid, "stat", buffer[:])
	if err != nil {
		return nil, unlessGone(err)
	}
	r, ok := parseStat(data)
	if !ok || r.PID == kthreadd || r.ppid == kthreadd {
		return nil, nil
	}
	return r, nil
}

// unlessGone drops the errors that say that a process is not there, or not ours to look into.
func unlessGone(err error) error {
	for _, gone := range []error{unix.ENOENT, unix.ESRCH, unix.EACCES, unix.EPERM} {
		if errors.Is(err, gone) {
			return nil
		}
	}
	return fmt.Errorf("read the process table: %w", err)
}

// kthreadd is the parent of all kernel threads. In a PID namespace of its own the number may be any process's, so it only
// counts where PID 2 has no parent.
var kthreadd = func() int {
	data, err := readProc(2, "stat", make([]byte, 4096))
	if r, ok := parseStat(data); err == nil && ok && r.ppid == 0 {
		return 2
	}
	return -1
}()

// readProc reads /proc/<pid>/<name> into buffer, which cuts what does not fit. It goes past os.File, which would try to register each
// of these files with the poller.
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

// parseStat reads a line of /proc/<pid>/stat, see proc_pid_stat(5). The command in parentheses may itself hold any byte, so
// counting starts after the last closing parenthesis.
func parseStat(data []byte) (*row, bool) {
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
	return &row{
		identity: identity{PID: pid, Start: start},
		ppid:     int(number(4)), pgid: int(number(5)), sid: int(number(6)),
		zombie:  state == "Z" || state == "X" || state == "x",
		threads: int(number(20)),
		rss:     number(24) * pageSize,
		cpu:     time.Duration(number(14)+number(15)+number(16)+number(17)) * clockTick,
	}, true
}

// statFields are the fields from the state on, as far as they are of use, and how many there are. It makes no garbage: each look at
// the process table reads the line of every process.
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

// cookieOf reads the cookie in a process's environment; "" when it has none or may not be read. It fails with errExecuting while the
// process executes a program: its environment reads as empty then, for as long as it is kept from a core.
func cookieOf(pid int) (string, error) {
	buffer := environBuffers.Get().(*[]byte)
	defer environBuffers.Put(buffer)
	for looks := 1; ; looks++ {
		environ, err := readProc(pid, "environ", *buffer)
		if err != nil {
			return "", unlessGone(err)
		}
		if len(environ) > 0 {
			return cookieIn(environ), nil
		}
		if looks == emptyLooks {
			return "", nil
		}
		var stat [1024]byte
		data, err := readProc(pid, "stat", stat[:])
		if err != nil {
			return "", unlessGone(err)
		}
		switch has, executing := memoryOf(data); {
		case executing:
			return "", errExecuting
		case !has: // of the kernel, or at its end
			return "", nil
		}
	}
}

// emptyLooks is how often an environment has to be seen empty, with the process seen not to execute anything in between: one that executes
// again and again may do so at two looks in a row by chance, about once in ten thousand times.
const emptyLooks = 6

// memoryOf tells from a line of /proc/<pid>/stat whether the process has memory, and whether that is new: not yet with the program, its
// arguments and its environment there. One that ends has none.
func memoryOf(stat []byte) (has, executing bool) {
	fields, n := statFields(stat)
	if n < len(fields) {
		return true, false
	}
	memory, code := string(fields[23-3]), string(fields[26-3]) // numbered as in proc_pid_stat(5), where the state is field 3
	return memory != "0", memory != "0" && code == "0"
}

// signalIdentity sends a signal to exactly the process id names, or fails with ESRCH.
func signalIdentity(id identity, sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err != nil && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	if err == nil {
		defer unix.Close(fd)
	}
	// Once the descriptor is open it cannot come to mean another process; so the comparison is made after that.
	now, readErr := readRow(id.PID)
	if readErr != nil {
		return readErr
	}
	if now == nil || now.identity != id {
		return unix.ESRCH
	}
	if err != nil {
		return unix.Kill(id.PID, sig)
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// bootID changes with every boot of the machine, after which start times mean nothing.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// becomeSubreaper makes orphaned descendants children of this process.
func becomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of orphaned descendants: %w", err)
	}
	return nil
}

// exitWatch returns a function that waits for the end of a child without reaping it, so that the PID stays taken. It must be called
// before anybody waits for the child; the function must be called once.
func exitWatch(pid int) (wait func()) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return func() { awaitZombie(pid) }
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	return func() {
		defer file.Close()
		ended := false
		if raw, err := file.SyscallConn(); err == nil {
			_ = raw.Read(func(fd uintptr) bool { // whatever it failed with, ended is false then
				var err error
				ended, err = readable(int(fd))
				return ended || err != nil
			})
		}
		if !ended {
			awaitZombie(pid)
		}
	}
}

func readable(fd int) (bool, error) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0, err
		}
	}
}

// awaitZombie serves kernels without pidfds, at the price of a thread. When it fails the child is gone already.
func awaitZombie(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// urgently runs f ahead of all ordinary processes, as far as this program may do that, on a thread that ends with it.
func urgently(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the runtime discards the thread when the goroutine ends
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20)
		f()
	}()
	<-done
}

// withUmask runs start, which forks, on a thread of its own whose umask is its own too. The thread ends with it.
func withUmask(mask int, start func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime discards the thread when the goroutine ends
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			done <- fmt.Errorf("give the starting thread a umask of its own: %w", err)
			return
		}
		unix.Umask(mask)
		done <- start()
	}()
	return <-done
}

// socketPair returns a connected pair of stream sockets: ours is served by the poller, theirs is blocking.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "frames"), os.NewFile(uintptr(fds[1]), "frames-child"), nil
}
