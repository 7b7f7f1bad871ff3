//go:build linux || darwin

package process

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// sigCont is a signal that other systems do not name.
const sigCont = syscall.SIGCONT

// tryLock takes the file's lock, which ends with the last descriptor of that opening of the file, or fails at once.
func tryLock(file *os.File) error {
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// sessionAttr puts a child into a session and process group of its own, as the user and groups of who unless that is nil.
func sessionAttr(who *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if who != nil {
		attr.Credential = &syscall.Credential{Uid: who.UID, Gid: who.GID, Groups: who.Groups, NoSetGroups: who.KeepGroups}
	}
	return attr
}

// signalGroup signals a process group whose leader has not been waited for. A group without living members is not an error.
func signalGroup(pgid int, sig syscall.Signal) error {
	if pgid <= 1 {
		return syscall.EINVAL // these numbers mean our own group and everybody
	}
	if err := unix.Kill(-pgid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// signalName is such as SIGSEGV.
func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return sig.String()
}

// reapAdopted reaps a process that is dead and was adopted. Its PID cannot be another's meanwhile: only its parent, which we are,
// frees it.
func reapAdopted(id identity) {
	if _, own := ownChildren.pids.Load(id.PID); own {
		return
	}
	if now, ok := identify(id.PID); !ok || now != id {
		return
	}
	var status unix.WaitStatus
	_, _ = unix.Wait4(id.PID, &status, unix.WNOHANG, nil) // fails only if it is not our child after all
}
