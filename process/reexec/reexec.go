// Package reexec starts helper processes: the agent's own program, executed again under another name, in a session of
// its own. They are the reaper and the keeper.
package reexec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/tempool/tempool/process/tree"
)

// The descriptors of a helper process: a pipe from the agent, a pipe to it, and the files that the agent gives it.
const (
	inFD = 3 + iota
	readyFD
	FilesFD
)

// startTimeout bounds the start of a helper process.
const startTimeout = 15 * time.Second

// Start starts a helper process, args[0] being its name, and returns when it is ready: within 15 seconds, and before
// ctx's deadline. It sends first as JSON through the pipe to the helper process, unless it is nil. The caller closes
// the pipe, and reaps the helper process with tree.WaitChild.
func Start(ctx context.Context, args []string, files []*os.File, first any) (pipe *os.File, cmd *exec.Cmd, err error) {
	self, err := tree.SelfPath()
	if err != nil {
		return nil, nil, err
	}
	in, pipe, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			pipe.Close()
		}
	}()
	ready, readyIn, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, nil, err
	}
	defer ready.Close()
	cmd = &exec.Cmd{
		Path: self, Args: args, Env: []string{"GOMAXPROCS=1", "GOTRACEBACK=none"},
		ExtraFiles:  append([]*os.File{in, readyIn}, files...),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = tree.StartChild(cmd)
	in.Close()
	readyIn.Close()
	if err != nil {
		return nil, nil, err
	}
	deadline := time.Now().Add(startTimeout)
	if limit, ok := ctx.Deadline(); ok && limit.Before(deadline) {
		deadline = limit
	}
	err = errors.Join(pipe.SetWriteDeadline(deadline), ready.SetReadDeadline(deadline))
	if err == nil && first != nil {
		err = json.NewEncoder(pipe).Encode(first)
	}
	if err == nil {
		_, err = ready.Read(make([]byte, 1))
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = tree.WaitChild(cmd)
		return nil, nil, fmt.Errorf("it did not report ready: %w", err)
	}
	return pipe, cmd, nil
}

// Enter is the first call of a helper process. It returns the pipe from the agent, and what reports to the agent
// that the helper process is ready.
func Enter() (in *os.File, ready func()) {
	// A signal to the agent's group, its terminal or all programs of its name must not end the helper process.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE)
	if os.Chdir("/") != nil {
		syscall.Exit(1)
	}
	return os.NewFile(inFD, "in"), func() {
		file := os.NewFile(readyFD, "ready")
		if _, err := file.Write([]byte{'\n'}); err != nil {
			syscall.Exit(1)
		}
		file.Close()
	}
}
