package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tempool/tempool/cmd/ctl/cli"
	"github.com/tempool/tempool/cmd/worker/agentcmd"
)

// roleEnv selects what a child process of this program runs.
const (
	roleEnv   = "TEMPOOL_BENCH_ROLE"
	roleAgent = "agent" // arguments: those of the agent
	roleNoop  = "noop"  // argument: the address of Temporal
	roleCtl   = "ctl"   // arguments: those of ctl; it ends on its own
)

// runRole is the main function of a child process. The child shuts down when its parent closes its stdin or exits.
func runRole(role string, args []string) int {
	if role == roleCtl {
		return cli.Run(context.Background(), args, os.Stdout, os.Stderr)
	}
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

// start starts this program in a role. exitCounts says that it must not fail.
func (b *bench) start(role, name string, exitCounts bool, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return cmd, b.launch(name, cmd, exitCounts, func() error {
		_ = stdin.Close() // fails if the child has exited, which its exit code reports
		return nil
	})
}

// agent starts an agent in its own process.
func (b *bench) agent(ctx context.Context, hostID string, args ...string) (*exec.Cmd, error) {
	return b.startAgent(ctx, hostID, true, args...)
}

// doomedAgent is agent for one that the benchmark kills.
func (b *bench) doomedAgent(ctx context.Context, hostID string, args ...string) (*exec.Cmd, error) {
	return b.startAgent(ctx, hostID, false, args...)
}

func (b *bench) startAgent(ctx context.Context, hostID string, exitCounts bool, args ...string) (*exec.Cmd, error) {
	if err := b.temporal(ctx); err != nil {
		return nil, err
	}
	return b.start(roleAgent, hostID, exitCounts, append([]string{
		"--address", b.server.Address(), "--host-id", hostID, "--state-dir", filepath.Join(b.dir, hostID), "--listen", "",
	}, args...)...)
}

// ctl runs ctl in a process of its own.
func (b *bench) ctl(ctx context.Context, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"--address", b.server.Address()}, args...)...)
	cmd.Env = append(os.Environ(), roleEnv+"="+roleCtl)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("ctl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return nil
}
