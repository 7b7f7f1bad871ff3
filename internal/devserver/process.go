package devserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool/internal/sleep"
)

const (
	startTimeout = 90 * time.Second // from the start until the server answers; under a second on an idle machine
	stopTimeout  = 10 * time.Second // from SIGTERM until SIGKILL, if the context of Stop does not end earlier
	killTimeout  = 10 * time.Second // from SIGKILL until the exit
)

// errPortRace marks the exit of a server whose port was free a moment before.
var errPortRace = errors.New("another program took the port")

// serverProcess is one process of a server.
type serverProcess struct {
	cmd  *exec.Cmd
	tail *tail
	done chan struct{} // closed when the process and its guard have exited
}

// launch starts one process and returns when it answers. If it does not answer, launch kills it.
func launch(ctx context.Context, binary string, options Options) (*serverProcess, error) {
	guard, err := newGuard()
	if err != nil {
		return nil, err
	}
	started := &serverProcess{cmd: exec.Command(binary, arguments(options)...), tail: &tail{}, done: make(chan struct{})}
	var out io.Writer = started.tail
	if options.Log != nil {
		out = io.MultiWriter(started.tail, options.Log)
	}
	started.cmd.Stdout, started.cmd.Stderr = out, out
	started.cmd.Env = environment()
	started.cmd.WaitDelay = time.Second
	guard.admit(started.cmd)
	if err := started.cmd.Start(); err != nil {
		guard.release()
		return nil, fmt.Errorf("start the Temporal server %s: %w", binary, err)
	}
	go func() {
		defer close(started.done)
		_ = started.cmd.Wait() // its output says how it ended
		guard.release()
	}()
	if err := started.awaitReady(ctx, options); err != nil {
		return nil, errors.Join(err, started.kill())
	}
	return started, nil
}

// awaitReady waits until the server answers for its namespace.
func (p *serverProcess) awaitReady(ctx context.Context, options Options) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	address := hostPort(options.Port)
	temporal, err := client.NewLazyClient(client.Options{HostPort: address, Namespace: options.Namespace, Logger: silent()})
	if err != nil {
		return fmt.Errorf("make a client for the Temporal server at %s: %w", address, err)
	}
	defer temporal.Close()
	for {
		failure := probe(ctx, temporal, address, options.Namespace)
		if failure == nil {
			return nil
		}
		pause := time.NewTimer(25 * time.Millisecond)
		select {
		case <-p.done:
			pause.Stop()
			output := p.tail.String()
			if strings.Contains(output, "address already in use") {
				return fmt.Errorf("the Temporal server exited: %w:\n%s", errPortRace, output)
			}
			return fmt.Errorf("the Temporal server exited before it was ready; its last output:\n%s", output)
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("the Temporal server at %s is not ready (%w, last attempt: %v); the machine may be overloaded; its last output:\n%s",
				address, context.Cause(ctx), failure, p.tail.String())
		case <-pause.C:
		}
	}
}

// probe makes one attempt. It connects to the port first, since gRPC retries a refused connection only after a second.
func probe(ctx context.Context, temporal client.Client, address, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil {
		return err
	}
	_, err = temporal.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	return err
}

func (p *serverProcess) stop(ctx context.Context) error {
	if sleep.Ended(p.done) {
		return nil
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	grace := time.NewTimer(stopTimeout)
	defer grace.Stop()
	select {
	case <-p.done:
		return nil
	case <-grace.C:
	case <-ctx.Done():
	}
	return p.kill()
}

func (p *serverProcess) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if sleep.For(p.done, killTimeout) {
		return fmt.Errorf("the Temporal server (process %d) is still running %s after SIGKILL; inspect it with ps", p.cmd.Process.Pid, killTimeout)
	}
	return nil
}

func (p *serverProcess) signal(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to the Temporal server (process %d): %w", signal, p.cmd.Process.Pid, err)
	}
	return nil
}
