package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tempool/tempool/cmd/worker/agentcmd"
)

// roleEnv selects what a child process of this program runs.
const (
	roleEnv   = "TEMPOOL_BENCH_ROLE"
	roleAgent = "agent" // arguments: those of the agent
	roleNoop  = "noop"  // argument: the address of Temporal
)

// runRole is the main function of a child process. The child shuts down when its parent closes its stdin or exits.
func runRole(role string, args []string) int {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM) // cannot fail for this process itself
	}()
	switch role {
	case roleAgent:
		return agentcmd.Main(args)
	case roleNoop:
		err := serveNoop(strings.Join(args, " "))
		if err == nil {
			return 0
		}
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	fmt.Fprintf(os.Stderr, "bench: unknown role %q\n", role)
	return 2
}

// child is this program running in a role.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	log   *os.File
}

// start starts this program in a role. Its output goes to a log file in the run's directory.
func (b *bench) start(role, name string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	a := &child{cmd: exec.Command(self, args...)}
	if a.log, err = os.Create(filepath.Join(b.dir, name+".log")); err != nil {
		return nil, fmt.Errorf("create the log of %s: %w", name, err)
	}
	a.cmd.Env = append(os.Environ(), roleEnv+"="+role)
	a.cmd.Stdout, a.cmd.Stderr = a.log, a.log
	a.cmd.WaitDelay = time.Second
	stdin, err := a.cmd.StdinPipe()
	if err == nil {
		a.stdin = stdin
		err = a.cmd.Start()
	}
	if err != nil {
		_ = a.log.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return a, nil
}

// agent starts an agent in its own process.
func (b *bench) agent(ctx context.Context, hostID string, args ...string) (*child, error) {
	if err := b.temporal(ctx); err != nil {
		return nil, err
	}
	return b.start(roleAgent, hostID, append([]string{
		"--address", b.server.Address(), "--host-id", hostID, "--state-dir", filepath.Join(b.dir, hostID), "--listen", "",
	}, args...)...)
}

// stopTimeout limits how long a child process may take to exit.
const stopTimeout = 90 * time.Second

// stop shuts the child down and waits for it. If the child fails, the error includes its last output.
func (a *child) stop() error {
	defer a.log.Close()
	force := time.AfterFunc(stopTimeout, func() { _ = a.cmd.Process.Kill() })
	defer force.Stop()
	_ = a.stdin.Close() // fails if the child has exited, which Wait reports
	if err := a.cmd.Wait(); err != nil {
		content, _ := os.ReadFile(a.log.Name()) // best effort
		return fmt.Errorf("%s: %w:\n%s", filepath.Base(a.log.Name()), err, content[max(0, len(content)-4096):])
	}
	return nil
}
