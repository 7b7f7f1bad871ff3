package tree

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// SignalGroup signals a process group whose leader has not been reaped. A group without living members is not an error.
func SignalGroup(pgid int, sig syscall.Signal) error {
	if pgid <= 1 {
		return syscall.EINVAL // kill(2) takes these numbers for our own group and for all processes
	}
	if err := unix.Kill(-pgid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// SignalName returns the signal's name, such as SIGSEGV.
func SignalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return sig.String()
}

// ReapChild reaps a child of Reclaim, for which it waits.
func ReapChild(pid int) (unix.WaitStatus, error) {
	defer startedChildren.pids.Delete(pid)
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(pid, &status, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			return status, err
		}
	}
}

// ReapOrphan reaps an adopted process that is dead. Only its parent, this process, can free its PID, so the PID cannot
// be another's.
func ReapOrphan(id Identity) {
	if _, started := startedChildren.pids.Load(id.PID); started {
		return
	}
	if !id.Exists() {
		return
	}
	var status unix.WaitStatus
	_, _ = unix.Wait4(id.PID, &status, unix.WNOHANG, nil) // fails only if it is not our child
}
