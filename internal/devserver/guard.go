package devserver

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// guard is a tiny process that leads the process group of what it guards and holds the reading end of a pipe whose other
// end only this process has. When this process is gone, however it ended, the guard reads the end of file and kills the
// group. Unlike a parent-death signal it works on every Unix and does not depend on the thread that started the child.
type guard struct {
	cmd *exec.Cmd
	end io.WriteCloser
}

func newGuard() (*guard, error) {
	cmd := exec.Command("/bin/sh", "-c", "read -r released || kill -KILL 0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe to guard a process: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start /bin/sh to guard a process: %w", err)
	}
	return &guard{cmd: cmd, end: end}, nil
}

// admit puts a command that is yet to be started into the guarded group. That group is its own, so a Ctrl-C in the
// terminal reaches only the owner, which can then end the command in good order.
func (g *guard) admit(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.cmd.Process.Pid}
}

// killGroup ends everything the guard has admitted, the guard included.
func (g *guard) killGroup() error { return syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL) }

// release ends the guard and leaves the group alone. It must be called once.
func (g *guard) release() {
	// Neither can fail in a way that matters: a guard that is gone already needs no word, and its exit says nothing.
	_, _ = io.WriteString(g.end, "released\n")
	_ = g.cmd.Wait()
}
