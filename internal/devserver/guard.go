package devserver

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// guard is a small process that leads the process group of the guarded commands and reads a pipe whose other end only
// this process has. When this process dies, in whatever way, the guard reads EOF and kills the group. Unlike a
// parent-death signal this works on every Unix and does not depend on the thread that started the child.
type guard struct {
	cmd *exec.Cmd
	end io.WriteCloser
}

func newGuard() (*guard, error) {
	cmd := exec.Command("/bin/sh", "-c", "read -r released || kill -KILL 0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("create a pipe to the server's watcher: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start /bin/sh to watch the server: %w", err)
	}
	return &guard{cmd: cmd, end: end}, nil
}

// admit puts a command into the guarded group before its start. Ctrl-C in the terminal does not reach that group, so
// the owner can stop the command gracefully.
func (g *guard) admit(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.cmd.Process.Pid}
}

// release ends the guard without killing the group. It must be called once.
func (g *guard) release() {
	// A guard that has exited already needs no release, and its exit code says nothing.
	_, _ = io.WriteString(g.end, "released\n")
	_ = g.cmd.Wait()
}
