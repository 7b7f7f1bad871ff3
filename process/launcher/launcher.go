// Package launcher is the program that starts others under per-process limits, marked as descendants of their
// incarnation, and without new privileges. What is set on a process from outside comes too late for what the process
// did before; so the agent executes its own program again as the launcher, which limits itself, takes the program's
// credentials and executes the program.
//
// A Go program initializes packages in the order of their paths, as soon as those that they import are ready. This one
// and those below it import little, and nothing whose path follows theirs in the alphabet, but for what package os
// needs: so the launcher runs before most of the agent's program is initialized, which takes several times as long.
package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/process/sandbox"
)

// Name is the launcher's argv[0]; its only argument is the descriptor of the socket over which the Request comes.
// Without one it exits at once.
const Name = "tempool-launch"

// Credentials are the user and groups that a program runs as. A nil *Credentials means the agent's own.
type Credentials struct {
	UID        uint32   `json:"uid"`
	GID        uint32   `json:"gid"`
	Groups     []uint32 `json:"groups,omitempty"`
	KeepGroups bool     `json:"keep_groups,omitempty"` // leave the supplementary groups as they are
}

// Request is what the launcher runs. It travels over a socket, not in the launcher's environment, which in a cgo build
// could make the launcher load code.
type Request struct {
	Program     string          `json:"program"`
	Args        []string        `json:"args"`
	Env         []string        `json:"env"`
	Credentials *Credentials    `json:"credentials,omitempty"`
	Limits      Limits          `json:"limits"`
	Mark        uint64          `json:"mark,omitempty"` // see tree.Mark
	Sandbox     sandbox.Sandbox `json:"sandbox"`
	Umask       int             `json:"umask"` // -1: the agent's own
	Agent       int             `json:"agent"` // the PID of the program that sent the request
}

// Reply is the launcher's answer: one when its limits are in effect, and a second one only if it cannot execute the
// program.
type Reply struct {
	Error string `json:"error,omitempty"` // a sentence; empty for success
	// OpenFiles is the limit in effect if the host allows fewer open files than requested, else 0.
	OpenFiles uint64 `json:"open_files,omitempty"`
}

// A program that is executed as the launcher becomes it.
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
	var program Request
	if err := json.NewDecoder(conn).Decode(&program); err != nil {
		os.Exit(1) // the agent is gone
	}
	fail := func(err error) {
		_ = json.NewEncoder(conn).Encode(Reply{Error: err.Error()})
		os.Exit(1)
	}
	var limited Reply
	if limited.OpenFiles, err = program.Limits.apply(); err != nil {
		fail(err)
	}
	if err := setMark(program.Mark); err != nil {
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
	if program.Umask >= 0 {
		syscall.Umask(program.Umask)
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

// become makes this process run with the credentials.
func (c *Credentials) become() error {
	if c == nil {
		return nil
	}
	if !c.KeepGroups {
		groups := make([]int, len(c.Groups))
		for i, gid := range c.Groups {
			groups[i] = int(gid)
		}
		if err := syscall.Setgroups(groups); err != nil {
			return fmt.Errorf("set the groups of pool.user: %w; the agent must be privileged for that", err)
		}
	}
	if err := syscall.Setgid(int(c.GID)); err != nil {
		return fmt.Errorf("run with group %d (pool.group): %w; the agent must be privileged for that", c.GID, err)
	}
	if err := syscall.Setuid(int(c.UID)); err != nil {
		return fmt.Errorf("run as user %d (pool.user): %w; the agent must be privileged for that", c.UID, err)
	}
	return nil
}

// dropPrivileges keeps this process and all its descendants from gaining privileges, and from writing core files, which
// would hold what clients sent.
func dropPrivileges() error {
	if err := forbidNewPrivileges(); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("forbid the worker core files: %w", err)
	}
	return nil
}

// SocketPair returns a connected pair of stream sockets. Both are close-on-exec. ours is served by the runtime's
// poller; theirs, for a child, is blocking.
func SocketPair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock() // no fork between the creation and close-on-exec
	defer syscall.ForkLock.RUnlock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket-child"), nil
}
