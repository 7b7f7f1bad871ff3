package tree

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// SelfPath returns the path of the running program.
func SelfPath() (string, error) { return os.Executable() }

// zombieStatus and stoppedStatus are SZOMB and SSTOP of sys/proc.h.
const (
	stoppedStatus = 4
	zombieStatus  = 5
)

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

// ReadEntry reads one process; nil if there is none. macOS does not report sessions, so the process group stands for
// the session; that is enough for a group leader made by setsid.
func ReadEntry(pid int) (*Entry, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(info.Proc.P_pid) != pid {
		return nil, nil // for a dead process the kernel returns nothing, which is an error here
	}
	return &Entry{
		Identity: identityOf(info),
		Parent:   int(info.Eproc.Ppid), pgid: int(info.Eproc.Pgid), Session: int(info.Eproc.Pgid),
		Zombie: info.Proc.P_stat == zombieStatus, Stopped: info.Proc.P_stat == stoppedStatus,
	}, nil
}

// identityOf uses the start time in microseconds.
func identityOf(info *unix.KinfoProc) Identity {
	started := info.Proc.P_starttime
	return Identity{PID: int(info.Proc.P_pid), Start: uint64(started.Sec)*1_000_000 + uint64(started.Usec)}
}

// readCookie reads the cookie from kern.procargs2, which holds the number of arguments, the program's path, padding,
// the arguments and the environment, each ended by a zero byte.
func readCookie(pid int) (string, error) {
	data, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(data) < 4 {
		return "", nil // gone, or not ours to read
	}
	count := int(binary.NativeEndian.Uint32(data))
	_, rest, found := bytes.Cut(data[4:], []byte{0})
	rest = bytes.TrimLeft(rest, "\x00")
	for ; found && count > 0; count-- {
		_, rest, found = bytes.Cut(rest, []byte{0})
	}
	return parseCookie(rest), nil
}

// NumberSpace names the boot of the machine. Numbers of processes from another one mean nothing.
func NumberSpace() string {
	boot, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return ""
	}
	return strconv.FormatInt(boot.Sec, 10)
}

// atHighPriority runs f at normal priority: on macOS a priority belongs to the whole process.
func atHighPriority(f func()) { f() }

// credentials are those of the process that connected to a Unix socket.
func credentials(fd int) (pid int, uid uint32, ok bool) {
	found, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, 0, false
	}
	pid, err = unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	return pid, found.Uid, err == nil
}
