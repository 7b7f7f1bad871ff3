package process

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func supported() error { return nil }

func selfExe() (string, error) { return os.Executable() }

// zombieStatus is SZOMB of sys/proc.h.
const zombieStatus = 5

func listPIDs() ([]int, error) {
	infos, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, fmt.Errorf("read the process table: %w", err)
	}
	pids := make([]int, len(infos))
	for i := range infos {
		pids[i] = int(infos[i].Proc.P_pid)
	}
	return pids, nil
}

// readRow reads one process. The kernel tells no sessions here; a process group stands for its session, which is all that a group
// leader made by setsid needs.
func readRow(pid int) (*row, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(info.Proc.P_pid) != pid {
		return nil, nil // the kernel answers with nothing, which is an error there, when the process is gone
	}
	return &row{
		identity: identityOf(info),
		ppid:     int(info.Eproc.Ppid), pgid: int(info.Eproc.Pgid), sid: int(info.Eproc.Pgid),
		zombie: info.Proc.P_stat == zombieStatus,
	}, nil
}

// identityOf takes the start time in microseconds.
func identityOf(info *unix.KinfoProc) identity {
	started := info.Proc.P_starttime
	return identity{PID: int(info.Proc.P_pid), Start: uint64(started.Sec)*1_000_000 + uint64(started.Usec)}
}

// cookieOf reads the environment out of kern.procargs2: the number of arguments, the program's path, padding, the arguments and
// then the environment, each ended by a zero byte.
func cookieOf(pid int) (string, error) {
	data, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(data) < 4 {
		return "", nil // gone, or not ours to look into
	}
	count := int(binary.NativeEndian.Uint32(data))
	_, rest, found := bytes.Cut(data[4:], []byte{0})
	rest = bytes.TrimLeft(rest, "\x00")
	for ; found && count > 0; count-- {
		_, rest, found = bytes.Cut(rest, []byte{0})
	}
	return cookieIn(rest), nil
}

// signalIdentity compares the start time first. Between that and the signal the PID could be reused only if it wrapped around.
func signalIdentity(id identity, sig syscall.Signal) error {
	if now, ok := identify(id.PID); !ok || now != id {
		return unix.ESRCH
	}
	return unix.Kill(id.PID, sig)
}

func bootID() string {
	boot, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return ""
	}
	return strconv.FormatInt(boot.Sec, 10)
}

var errNoSubreaper = errors.New("this system has no subreapers")

func becomeSubreaper() error { return errNoSubreaper }

// exitWatch waits for the note of the kernel that the child has exited, which leaves it to be reaped.
func exitWatch(pid int) (wait func()) {
	queue, err := unix.Kqueue()
	if err != nil {
		return func() { awaitZombie(pid) }
	}
	unix.CloseOnExec(queue)
	return func() {
		defer unix.Close(queue)
		var change unix.Kevent_t
		unix.SetKevent(&change, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
		change.Fflags = unix.NOTE_EXIT
		events := make([]unix.Kevent_t, 1)
		for {
			_, err := unix.Kevent(queue, []unix.Kevent_t{change}, events, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || events[0].Flags&unix.EV_ERROR != 0 {
				awaitZombie(pid)
			}
			return
		}
	}
}

// awaitZombie looks at the process table until the child is a zombie in it, or gone.
func awaitZombie(pid int) {
	for {
		info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
		if err != nil || int(info.Proc.P_pid) != pid || info.Proc.P_stat == zombieStatus {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// urgently has no means here: priorities belong to whole processes.
func urgently(f func()) { f() }

// withUmask refuses: here a umask belongs to the whole process, so changing it for one fork would change it for the agent's files.
func withUmask(int, func() error) error {
	return coded(CodeInvalid, nil, "pool.umask works on Linux only: set the umask of the agent, or in the program")
}

func socketPair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "frames"), os.NewFile(uintptr(fds[1]), "frames-child"), nil
}
