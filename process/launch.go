package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/tempool/tempool/process/launcher"
	"github.com/tempool/tempool/process/sandbox"
	"github.com/tempool/tempool/process/tree"
)

// firstExtraFD is the descriptor of the first of a command's ExtraFiles.
const firstExtraFD = 3

// launch starts cmd through the launcher, under the plan's limits, and waits until the program runs, for at most
// timeout. cmd enters the namespaces in join. If there are none it may have its own, which launch returns and the
// caller closes. openFiles is the limit in effect if the host allows fewer open files than the plan's, else 0.
func (p plan) launch(cmd *exec.Cmd, join sandbox.Namespaces, timeout time.Duration) (own sandbox.Namespaces,
	openFiles uint64, err error) {
	if p.cgroup != nil {
		afterStart, err := p.cgroup.Attach(cmd)
		if err != nil {
			return nil, 0, err
		}
		defer afterStart()
	}
	self, err := tree.SelfPath()
	if err != nil {
		return nil, 0, fmt.Errorf("find the agent's program for its launcher: %w", err)
	}
	ours, theirs, err := launcher.SocketPair()
	if err != nil {
		return nil, 0, err
	}
	defer ours.Close()
	request := launcher.Request{
		Program: cmd.Path, Args: cmd.Args, Env: cmd.Env, Credentials: p.credentials, Limits: p.limits,
		Mark: uint64(p.mark), Sandbox: p.sandbox, Umask: p.umask, Agent: os.Getpid(),
	}
	cmd.ExtraFiles = append(append([]*os.File{}, cmd.ExtraFiles...), theirs)
	socket := firstExtraFD + len(cmd.ExtraFiles) - 1
	for i, namespace := range join {
		cmd.ExtraFiles = append(cmd.ExtraFiles, namespace)
		request.Sandbox.Join = append(request.Sandbox.Join, socket+1+i)
	}
	request.Sandbox.Attach(cmd.SysProcAttr)
	cmd.Path, cmd.Args = self, []string{launcher.Name, strconv.Itoa(socket)}
	cmd.Env = []string{"GOMAXPROCS=1", "GOTRACEBACK=none", EnvIncarnation + "=" + p.cookie}
	err = p.fork(cmd)
	theirs.Close()
	if err != nil {
		return nil, 0, p.sandbox.Explain(err)
	}
	own, err = request.Sandbox.Open(cmd.Process.Pid)
	if err == nil {
		err = ours.SetDeadline(time.Now().Add(timeout))
	}
	if err == nil {
		if openFiles, err = awaitProgram(ours, request); err == nil {
			return own, openFiles, nil
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("the program did not start within %s: its launcher was still preparing it", timeout)
		}
	}
	own.Close()
	_ = cmd.Process.Kill()
	_ = tree.WaitChild(cmd)
	return nil, 0, err
}

// awaitProgram sends the request and waits until the launcher has executed the program.
func awaitProgram(conn io.ReadWriter, request launcher.Request) (openFiles uint64, err error) {
	// The launcher reads exactly one value; a socket that is closed with unread bytes would reset the connection.
	text, err := json.Marshal(request)
	if err == nil {
		_, err = conn.Write(text)
	}
	if err != nil {
		return 0, fmt.Errorf("send the launcher its request: %w", err)
	}
	replies := json.NewDecoder(conn)
	var limited, failed launcher.Reply
	if err := replies.Decode(&limited); err != nil {
		return 0, fmt.Errorf("launcher exited before the program ran: %w", err)
	}
	if limited.Error != "" {
		return 0, errors.New(limited.Error)
	}
	switch err := replies.Decode(&failed); {
	case err == io.EOF: // execve closed the launcher's end
		return limited.OpenFiles, nil
	case err != nil:
		return 0, fmt.Errorf("wait for the program to run: %w", err)
	}
	return 0, errors.New(failed.Error)
}
