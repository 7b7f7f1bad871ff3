package process

import (
	"os/exec"
	"sync"
)

// ownChildren are the children that this package started and somebody will wait for. An adopted orphan is reaped on sight, so
// these must be told apart from the moment of their fork.
var ownChildren = struct {
	mu   sync.RWMutex // held for reading over each fork; for writing while orphans are told from children
	pids sync.Map     // int → struct{}
}{}

// startChild starts cmd as a child that is waited for with waitChild.
func startChild(cmd *exec.Cmd) error {
	ownChildren.mu.RLock()
	defer ownChildren.mu.RUnlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	ownChildren.pids.Store(cmd.Process.Pid, struct{}{})
	return nil
}

// waitChild reaps a child of startChild. Its PID is free for others from then on.
func waitChild(cmd *exec.Cmd) error {
	pid := cmd.Process.Pid
	err := cmd.Wait()
	ownChildren.pids.Delete(pid)
	return err
}
