package devserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool/internal/sleep"
)

const (
	startTimeout = 90 * time.Second // from the start until the server answers; under a second on an idle machine
	stopTimeout  = 10 * time.Second // from SIGTERM until SIGKILL, if the context of Stop does not end earlier
	killTimeout  = 10 * time.Second // from SIGKILL until the exit
)

// Failures of a start that another attempt may not meet.
var (
	// errPortRace marks the exit of a server whose port was free a moment before.
	errPortRace = errors.New("another program took the port")
	// errInterrupted marks a server that has lost its only connection to its database. SQLite drivers before v1.40.1,
	// which a program that was downloaded or is on the PATH may have, can leave a statement open when a caller gives up at
	// the wrong moment; SQLite then interrupts all later statements, until the process ends. It is likelier on a machine
	// that is busy.
	errInterrupted = errors.New("the Temporal server cannot use its database any more")
)

// interrupted is SQLite's message in the answers of such a server.
const interrupted = "interrupted (9)"

// serverProcess is one process of a server.
type serverProcess struct {
	cmd  *exec.Cmd
	tail *tail
	done <-chan struct{} // closed when the process and its guard have exited
}

// launchAgain launches a server on the ports of options, or on free ones, and returns them, too. It attempts again what
// another attempt may achieve.
func launchAgain(ctx context.Context, binary string, options Options) (*serverProcess, Options, error) {
	for attempt := 1; ; attempt++ {
		chosen, err := choosePorts(options)
		if err == nil {
			var started *serverProcess
			if started, err = launch(ctx, binary, chosen); err == nil {
				return started, chosen, nil
			}
		}
		if attempt == startAttempts || !errors.Is(err, errPortRace) && !errors.Is(err, errInterrupted) || ctx.Err() != nil {
			return nil, chosen, err
		}
	}
}

// launch starts one process and returns when it serves. If it does not, launch kills it.
func launch(ctx context.Context, binary string, options Options) (*serverProcess, error) {
	guard, err := newGuard()
	if err != nil {
		return nil, err
	}
	started := &serverProcess{cmd: exec.Command(binary, arguments(options)...), tail: &tail{log: options.Log}}
	started.cmd.Stdout, started.cmd.Stderr = started.tail, started.tail
	started.cmd.Env = environment()
	started.cmd.WaitDelay = time.Second
	guard.admit(started.cmd)
	if err := started.cmd.Start(); err != nil {
		guard.release()
		return nil, fmt.Errorf("start the Temporal server %s: %w", binary, err)
	}
	started.done = sleep.Done(func() {
		_ = started.cmd.Wait() // its output says how it ended
		guard.release()
	})
	if err := started.awaitReady(ctx, options); err != nil {
		return nil, errors.Join(err, started.kill())
	}
	return started, nil
}

// awaitReady waits until all services of the server have started, and it answers for its namespace and for the
// workflows in it.
func (p *serverProcess) awaitReady(ctx context.Context, options Options) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	address := hostPort(options.Port)
	temporal, err := client.NewLazyClient(client.Options{HostPort: address, Namespace: options.Namespace,
		Logger: silent()})
	if err != nil {
		return fmt.Errorf("make a client for the Temporal server at %s: %w", address, err)
	}
	defer temporal.Close()
	for {
		wait := 25 * time.Millisecond
		failure := probe(ctx, temporal, address, options.Namespace)
		switch {
		case failure == nil && p.tail.hasStarted():
			return nil
		case failure == nil: // the other services need the machine
			failure = errors.New("not all of its services have started")
			wait = 100 * time.Millisecond
		case strings.Contains(failure.Error(), interrupted):
			return fmt.Errorf("%w (%w); its last output:\n%s", errInterrupted, failure, p.tail.String())
		}
		select {
		case <-p.done:
			output := p.tail.String()
			switch {
			case strings.Contains(output, "address already in use"):
				return fmt.Errorf("the Temporal server exited: %w:\n%s", errPortRace, output)
			case strings.Contains(output, interrupted):
				return fmt.Errorf("%w and exited; its last output:\n%s", errInterrupted, output)
			}
			return fmt.Errorf("the Temporal server exited before it was ready; its last output:\n%s", output)
		case <-ctx.Done():
			return fmt.Errorf("the Temporal server at %s is not ready (%w, last attempt: %v); the machine may be overloaded; "+
				"its last output:\n%s",
				address, context.Cause(ctx), failure, p.tail.String())
		case <-time.After(wait):
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
	if _, err = temporal.WorkflowService().DescribeNamespace(ctx,
		&workflowservice.DescribeNamespaceRequest{Namespace: namespace}); err != nil {
		return err
	}
	// The namespace is known before the service that owns the workflows serves them: that says that there is no such
	// workflow.
	_, err = temporal.WorkflowService().DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: namespace, Execution: &common.WorkflowExecution{WorkflowId: "tempool/-/probe"},
	})
	if _, none := errors.AsType[*serviceerror.NotFound](err); none {
		return nil
	}
	return err
}

func (p *serverProcess) stop(ctx context.Context) error {
	if sleep.Ended(p.done) {
		return nil
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
	case <-ctx.Done():
	}
	return p.kill()
}

func (p *serverProcess) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if sleep.For(p.done, killTimeout) {
		return fmt.Errorf("the Temporal server (process %d) is still running %s after SIGKILL; inspect it with ps",
			p.cmd.Process.Pid, killTimeout)
	}
	return nil
}

func (p *serverProcess) signal(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to the Temporal server (process %d): %w", signal, p.cmd.Process.Pid, err)
	}
	return nil
}

const tailSize = 16 << 10

// tail keeps the last tailSize bytes written to it, and writes all to a log if it has one; a full disk must not end the
// server. It is safe for concurrent use.
type tail struct {
	log     io.Writer
	mu      sync.Mutex
	end     []byte
	started bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.log != nil {
		_, _ = t.log.Write(p)
	}
	t.end = append(t.end, p...)
	t.started = t.started || bytes.Contains(t.end, []byte("Server:"))
	if len(t.end) > 2*tailSize {
		t.end = bytes.Clone(t.end[len(t.end)-tailSize:])
	}
	return len(p), nil
}

// hasStarted reports whether the program has written that all services of the server have started. Before, some of them
// answer, but the program exits a minute later if one of the others has not started.
func (t *tail) hasStarted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.started
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.end[max(0, len(t.end)-tailSize):])
}
