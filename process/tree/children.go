package tree

import (
	"os"
	"os/exec"
	"sync"
)

// startedChildren are the children of StartChild that WaitChild has not reaped yet. Adopted orphans are reaped as soon
// as they are found, so a started child must be known from its fork on.
var startedChildren = struct {
	mu   sync.RWMutex // read-locked during each fork; locked while orphans are distinguished from children
	pids sync.Map     // int → struct{}
}{}

// StartChild starts cmd. The caller must reap the child with WaitChild, not with cmd.Wait.
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

// Disown makes a child of StartChild one that nobody reaps with WaitChild. Its PID stays taken until it has exited and
// its parent, this program or the process that adopts it, has reaped it.
func Disown(cmd *exec.Cmd) {
	startedChildren.pids.Delete(cmd.Process.Pid)
	_ = cmd.Process.Release()
}

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
