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

	"github.com/tempool/tempool/internal/agentcmd"
)

// roleVariable makes this program another one: those that a comparison needs in a process of their own.
const (
	roleVariable = "TEMPOOL_BENCH_ROLE"
	roleAgent    = "agent" // args: those of the agent
	roleNoop     = "noop"  // args: Temporal's address
)

// play is the main of a process in a role. It ends in good order when its parent closes its stdin, or dies.
func play(role string, args []string) int {
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
	fmt.Fprintf(os.Stderr, "bench: there is no role %q\n", role)
	return 2
}

// actor is this program in a role.
type actor struct {
	cmd   *exec.Cmd
	stdin io.Closer
	log   *os.File
}

// start starts this program in a role; its output goes to a file of the run's folder.
func (b *bench) start(role, name string, args ...string) (*actor, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	a := &actor{cmd: exec.Command(self, args...)}
	if a.log, err = os.Create(filepath.Join(b.dir, name+".log")); err != nil {
		return nil, fmt.Errorf("make the log of %s: %w", name, err)
	}
	a.cmd.Env = append(os.Environ(), roleVariable+"="+role)
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

// agent starts an agent in a process of its own, as users have it.
func (b *bench) agent(ctx context.Context, hostID string, args ...string) (*actor, error) {
	if err := b.temporal(ctx); err != nil {
		return nil, err
	}
	return b.start(roleAgent, hostID, append([]string{
		"--address", b.server.Address(), "--host-id", hostID, "--state-dir", filepath.Join(b.dir, hostID), "--listen", "",
	}, args...)...)
}

// actorPatience is how long an actor may take to end.
const actorPatience = 90 * time.Second

// stop ends the actor in good order and returns when it is gone. Where it does not end well, the error has its last output.
func (a *actor) stop() error {
	defer a.log.Close()
	force := time.AfterFunc(actorPatience, func() { _ = a.cmd.Process.Kill() })
	defer force.Stop()
	_ = a.stdin.Close() // it may have ended already, which Wait tells
	if err := a.cmd.Wait(); err != nil {
		content, _ := os.ReadFile(a.log.Name()) // without it the exit alone is told
		return fmt.Errorf("%s: %w:\n%s", filepath.Base(a.log.Name()), err, content[max(0, len(content)-4096):])
	}
	return nil
}
