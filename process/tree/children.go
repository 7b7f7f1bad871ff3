package tree

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// startedChildren are the children of StartChild and Reclaim that nobody has reaped yet. Adopted orphans are reaped as
// soon as they are found, so a started child must be known from its fork on.
var startedChildren = struct {
	mu   sync.RWMutex // read-locked during each fork; locked while orphans are distinguished from children
	pids sync.Map     // int → struct{}
}{}

// StartChild starts cmd. The caller must reap the child with WaitChild, not with cmd.Wait; or, once it has released
// cmd.Process, with ReapChild.
func StartChild(cmd *exec.Cmd) error {
	startedChildren.mu.RLock()
	defer startedChildren.mu.RUnlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	startedChildren.pids.Store(cmd.Process.Pid, struct{}{})
	return nil
}

// WaitChild reaps a child of StartChild. From then on its PID may be reused.
func WaitChild(cmd *exec.Cmd) error {
	pid := cmd.Process.Pid
	err := cmd.Wait()
	startedChildren.pids.Delete(pid)
	return err
}

// Disown makes a child of StartChild or Reclaim one that this program need not reap. Its PID stays taken until it has
// exited and its parent, this program or the process that adopts it, has reaped it.
func Disown(pid int) { startedChildren.pids.Delete(pid) }

// Reclaim registers a process that another part of this program has disowned as a child of this one, to be reaped with
// ReapChild. It reports false if the process is not this program's child.
func Reclaim(id Identity) bool {
	startedChildren.mu.Lock()
	defer startedChildren.mu.Unlock()
	e, err := ReadEntry(id.PID)
	if err != nil || e == nil || e.Identity != id || e.Parent != os.Getpid() {
		return false
	}
	startedChildren.pids.Store(id.PID, struct{}{})
	return true
}

// Signal sends a signal to exactly the process that id names, or fails with ESRCH. Package os opens a pidfd where the
// system has them, which cannot become another process's, so the comparison comes after that. Elsewhere the PID could
// be reused between the comparison and the signal only if PIDs wrapped around.
func Signal(id Identity, sig syscall.Signal) error {
	p, _ := os.FindProcess(id.PID) // never fails
	defer func() { _ = p.Release() }()
	now, err := ReadEntry(id.PID)
	if err != nil {
		return err
	}
	if now == nil || now.Identity != id {
		return unix.ESRCH
	}
	if err := p.Signal(sig); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return unix.ESRCH
}

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

// ReapChild waits for a child of StartChild or Reclaim, and reaps it.
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
