package devserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
)

// errPortRace marks the death of a server whose port was free a moment before.
var errPortRace = errors.New("a port was taken in the meantime")

// instance is one process of a server.
type instance struct {
	cmd  *exec.Cmd
	tail *tail
	done chan struct{} // closed when the process has ended and its guard is gone
}

// launch starts one process and returns when it answers. If it does not, nothing of it is left.
func launch(ctx context.Context, binary string, options Options) (*instance, error) {
	guard, err := newGuard()
	if err != nil {
		return nil, err
	}
	started := &instance{cmd: exec.Command(binary, arguments(options)...), tail: &tail{}, done: make(chan struct{})}
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
		_ = started.cmd.Wait() // how it ended is in its output
		guard.release()
	}()
	if err := started.awaitReady(ctx, options); err != nil {
		return nil, errors.Join(err, started.kill())
	}
	return started, nil
}

func (i *instance) ended() bool {
	select {
	case <-i.done:
		return true
	default:
		return false
	}
}

// awaitReady returns when the server answers for its namespace.
func (i *instance) awaitReady(ctx context.Context, options Options) error {
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	address := hostPort(options.Port)
	temporal, err := client.NewLazyClient(client.Options{HostPort: address, Namespace: options.Namespace, Logger: silent()})
	if err != nil {
		return fmt.Errorf("make a client for the Temporal server at %s: %w", address, err)
	}
	defer temporal.Close()
	for {
		failure := answers(ctx, temporal, address, options.Namespace)
		if failure == nil {
			return nil
		}
		pause := time.NewTimer(25 * time.Millisecond)
		select {
		case <-i.done:
			pause.Stop()
			output := i.tail.String()
			if strings.Contains(output, "address already in use") {
				return fmt.Errorf("the Temporal server ended at once: %w:\n%s", errPortRace, output)
			}
			return fmt.Errorf("the Temporal server ended before it was ready; its last words:\n%s", output)
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("the Temporal server at %s did not answer in time (%w, last: %v); is the machine overloaded? Its last words:\n%s",
				address, context.Cause(ctx), failure, i.tail.String())
		case <-pause.C:
		}
	}
}

// answers makes one attempt. It looks for an open port first because a refused gRPC connection is only retried a
// second later.
func answers(ctx context.Context, temporal client.Client, address, namespace string) error {
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

// silent is a logger for short-lived clients whose failures are reported as errors.
func silent() sdklog.Logger { return sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)) }

const tailSize = 16 << 10

// tail keeps the last tailSize bytes written to it.
type tail struct {
	mu   sync.Mutex // guards kept
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if len(t.kept) > 2*tailSize {
		t.kept = bytes.Clone(t.kept[len(t.kept)-tailSize:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept[max(0, len(t.kept)-tailSize):])
}
