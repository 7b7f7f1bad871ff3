package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// bareWorker is a worker program without Tempool.
type bareWorker struct {
	cmd  *exec.Cmd
	conn *wire.Conn
}

// spawnBare starts a pool's program with only its connection, and returns after its hello.
func spawnBare(ctx context.Context, s spec.Spec) (*bareWorker, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("create a socket pair: %w", err)
	}
	for _, fd := range pair {
		unix.CloseOnExec(fd)
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return nil, fmt.Errorf("set a socket non-blocking: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer theirs.Close()
	in, out, err := os.Pipe()
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("create a pipe: %w", err)
	}
	defer out.Close()
	h := &bareWorker{cmd: exec.Command(s.Pool.Command[0], s.Pool.Command[1:]...)}
	h.cmd.Dir = s.Pool.Dir
	h.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), process.EnvFD + "=3", process.EnvOut + "=4", process.EnvWorker +
		"=" + s.Pool.Name + "/0"}
	for name, value := range s.Pool.Env {
		h.cmd.Env = append(h.cmd.Env, name+"="+value)
	}
	h.cmd.ExtraFiles = []*os.File{theirs, out}
	if err := h.cmd.Start(); err != nil {
		_ = ours.Close()
		_ = in.Close()
		return nil, fmt.Errorf("spawn %s: %w", s.Pool.Command[0], err)
	}
	if h.conn, err = wire.NewFrames(in, ours, wire.Options{}); err == nil {
		err = wire.AwaitReady(ctx, h.conn)
	}
	if err != nil {
		h.kill()
		return nil, fmt.Errorf("read the hello of process %d: %w", h.cmd.Process.Pid, err)
	}
	return h, nil
}

// kill ends the program.
func (h *bareWorker) kill() {
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait() // always fails: it was killed
	if h.conn != nil {
		_ = h.conn.Close()
	}
}
