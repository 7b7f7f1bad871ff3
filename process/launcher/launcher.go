// Package launcher starts programs under per-process limits, marked as descendants of their incarnation, and without
// new privileges. What is set on a process from outside comes too late for what the process did before; so the agent
// executes its own program again as the launcher, which limits itself, takes the program's credentials and executes the
// program.
package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/process/sandbox"
	"github.com/tempool/tempool/process/tree"
)

// Name is the launcher's argv[0].
const Name = "tempool-launch"

// Options say how to start a program.
type Options struct {
	Limits      limits.PerProcess
	Mark        tree.Mark
	Sandbox     sandbox.Sandbox
	Credentials *Credentials // nil: the agent's own
	// Join are the namespaces of a worker's sandbox that the program enters; none for namespaces of its own.
	Join sandbox.Namespaces
	// Env is the launcher's environment, not the program's. It must contain the incarnation's cookie.
	Env     []string
	Fork    func(*exec.Cmd) error // starts the launcher, which is reaped with tree.WaitChild
	Timeout time.Duration         // until the limits are in effect and the program runs
}

// Started is what the start of a program has found out.
type Started struct {
	// OpenFiles is the limit in effect if the host allows fewer open files than requested, else 0.
	OpenFiles uint64
	// Namespaces are those of the program's sandbox, if it has any of its own. The caller closes them.
	Namespaces sandbox.Namespaces
}

// Credentials are the user and groups that a program runs as. A nil *Credentials means the agent's own.
type Credentials struct {
	UID        uint32   `json:"uid"`
	GID        uint32   `json:"gid"`
	Groups     []uint32 `json:"groups,omitempty"`
	KeepGroups bool     `json:"keep_groups,omitempty"` // leave the supplementary groups as they are
}

// request is what the launcher runs. It travels over a socket, not in the launcher's environment, which in a cgo build
// could make the launcher load code.
type request struct {
	Program     string            `json:"program"`
	Args        []string          `json:"args"`
	Env         []string          `json:"env"`
	Credentials *Credentials      `json:"credentials,omitempty"`
	Limits      limits.PerProcess `json:"limits"`
	Mark        tree.Mark         `json:"mark,omitempty"`
	Sandbox     sandbox.Sandbox   `json:"sandbox"`
	Agent       int               `json:"agent"` // the PID of the program that sent the request
}

// reply is the launcher's answer: one when its limits are in effect, and a second one only if it cannot execute the
// program.
type reply struct {
	Error string `json:"error,omitempty"` // a sentence; empty for success
	// OpenFiles is the limit in effect if the host allows fewer open files than requested.
	OpenFiles uint64 `json:"open_files,omitempty"`
}

// firstExtraFD is the descriptor of the first of a command's ExtraFiles.
const firstExtraFD = 3

// Start starts cmd through the launcher and waits until the program runs.
func Start(cmd *exec.Cmd, o Options) (started Started, err error) {
	self, err := tree.SelfPath()
	if err != nil {
		return started, fmt.Errorf("find the agent's program for its launcher: %w", err)
	}
	ours, theirs, err := SocketPair()
	if err != nil {
		return started, err
	}
	defer ours.Close()
	program := request{
		Program: cmd.Path, Args: cmd.Args, Env: cmd.Env, Credentials: o.Credentials, Limits: o.Limits, Mark: o.Mark,
		Sandbox: o.Sandbox, Agent: os.Getpid(),
	}
	cmd.ExtraFiles = append(append([]*os.File{}, cmd.ExtraFiles...), theirs)
	socket := firstExtraFD + len(cmd.ExtraFiles) - 1
	for i, namespace := range o.Join {
		cmd.ExtraFiles = append(cmd.ExtraFiles, namespace)
		program.Sandbox.Join = append(program.Sandbox.Join, socket+1+i)
	}
	program.Sandbox.Attach(cmd)
	cmd.Path, cmd.Args = self, []string{Name, strconv.Itoa(socket)}
	cmd.Env = append([]string{"GOMAXPROCS=1", "GOTRACEBACK=none"}, o.Env...)
	cmd.SysProcAttr.Credential = nil
	err = o.Fork(cmd)
	theirs.Close()
	if err != nil {
		return started, o.Sandbox.Explain(err)
	}
	started.Namespaces, err = program.Sandbox.Open(cmd.Process.Pid)
	if err == nil {
		err = ours.SetDeadline(time.Now().Add(o.Timeout))
	}
	if err == nil {
		if started.OpenFiles, err = awaitProgram(ours, program); err == nil {
			return started, nil
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("the program did not start within %s: its launcher was still preparing it", o.Timeout)
		}
	}
	started.Namespaces.Close()
	_ = cmd.Process.Kill()
	_ = tree.WaitChild(cmd)
	return Started{}, err
}

// awaitProgram sends the request and waits until the launcher has executed the program.
func awaitProgram(conn io.ReadWriter, program request) (openFiles uint64, err error) {
	// The launcher reads exactly one value; a socket that is closed with unread bytes would reset the connection.
	text, err := json.Marshal(program)
	if err == nil {
		_, err = conn.Write(text)
	}
	if err != nil {
		return 0, fmt.Errorf("send the launcher its request: %w", err)
	}
	replies := json.NewDecoder(conn)
	var limited, failed reply
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

// A program that is executed as the launcher becomes it before most of its packages are initialized: that takes several
// times as long as everything else until the program of the worker runs.
func init() {
	if len(os.Args) > 0 && os.Args[0] == Name {
		run()
	}
}

// run is the main function of the launcher. It reads its request, limits itself, and executes the program. It never
// returns.
func run() {
	runtime.LockOSThread() // some limits belong to the thread, and execve keeps only the calling thread
	if len(os.Args) != 2 {
		os.Exit(1)
	}
	fd, err := strconv.Atoi(os.Args[1])
	if err != nil {
		os.Exit(1)
	}
	syscall.CloseOnExec(fd)
	conn := os.NewFile(uintptr(fd), "launch")
	var program request
	if err := json.NewDecoder(conn).Decode(&program); err != nil {
		os.Exit(1) // the agent is gone
	}
	fail := func(err error) {
		_ = json.NewEncoder(conn).Encode(reply{Error: err.Error()})
		os.Exit(1)
	}
	var limited reply
	if limited.OpenFiles, err = program.Limits.Apply(); err != nil {
		fail(err)
	}
	if err := program.Mark.Set(); err != nil {
		fail(err)
	}
	if os.Getppid() != program.Agent {
		// the program that kills the descendants of a dead agent may have looked for marks before this process had one
		os.Exit(1)
	}
	if err := program.Sandbox.Enter(); err != nil {
		fail(err)
	}
	files, err := program.Sandbox.OpenFiles()
	if err != nil {
		fail(err)
	}
	if err := program.Credentials.become(); err != nil {
		fail(err)
	}
	if err := dropPrivileges(); err != nil {
		fail(err)
	}
	if err := files.Restrict(); err != nil {
		fail(err)
	}
	if err := json.NewEncoder(conn).Encode(limited); err != nil {
		os.Exit(1)
	}
	err = syscall.Exec(program.Program, program.Args, program.Env)
	fail(fmt.Errorf("execute %s: %w%s", program.Program, err, executeHint(err)))
}

// executeHint is what an error that is not about the program's own file means.
func executeHint(err error) string {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return "; a script needs a first line such as #!/usr/bin/env python3, and any other program must be built for this " +
			"machine"
	case errors.Is(err, syscall.ENOENT):
		return "; the interpreter that its first line names, or the loader that it was built for, does not exist"
	}
	return ""
}

// NoopCommand returns a command that starts the launcher without a request, so that it exits at once.
func NoopCommand() (*exec.Cmd, error) {
	self, err := tree.SelfPath()
	if err != nil {
		return nil, err
	}
	var agent *Credentials
	return &exec.Cmd{Path: self, Args: []string{Name}, SysProcAttr: agent.SessionAttr()}, nil
}
