package process

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// Delays between two checks whether a program listens.
const (
	minListenPoll = 2 * time.Millisecond
	maxListenPoll = 100 * time.Millisecond
)

// foreignListenerTimeout is how long another program may hold the port assigned to a worker before the start fails.
const foreignListenerTimeout = time.Second

var (
	errForeignListener = errors.New("another program listens on the port assigned to this worker")
	errForeignSocket   = errors.New("another program listens on the socket of this worker")
)

var errExitedEarly = errors.New("exited before it was ready")

// errNoHello names the descriptor for a program that was written by hand and answers on its socket.
var errNoHello = errors.New("no hello frame arrived on the descriptor " + EnvOut + " (docs/protocol.md)")

// becomeReady waits for the handshake and runs the warm-up. It fails as soon as the process exits.
func (p *Process) becomeReady(ctx context.Context) error {
	if p.vacant() {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-p.exited:
			cancel(errExitedEarly)
		case <-ctx.Done():
		}
	})
	err := p.handshake(ctx)
	if err == nil {
		err = p.warmUp(ctx)
	}
	if errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), errExitedEarly) {
		err = fmt.Errorf("%w: %w", errExitedEarly, err)
	}
	cancel(nil)
	watcher.Wait()
	return err
}

func (p *Process) handshake(ctx context.Context) error {
	if p.connErr != nil {
		return fmt.Errorf("open the connection: %w", p.connErr)
	}
	switch p.spec.Pool.Protocol {
	case spec.ProtocolFrames:
		err := wire.AwaitReady(ctx, p.conn)
		var violation *wire.ProtocolError
		switch {
		case errors.As(err, &violation): // by a worker that has found the descriptor
			return fmt.Errorf("wait for the hello frame: %w", err)
		case err != nil:
			return fmt.Errorf("%w: %w", errNoHello, err)
		}
	case spec.ProtocolNone:
		return p.awaitListening(ctx)
	}
	return nil
}

func (p *Process) warmUp(ctx context.Context) error {
	if err := p.greetMCP(ctx); err != nil {
		return err
	}
	for _, w := range p.spec.Start.Warmup {
		request := wire.Request{Method: w.Method, Payload: w.Params}
		if len(request.Payload) == 0 {
			request.Payload = json.RawMessage("{}")
		}
		if p.conn == nil {
			return fmt.Errorf("warm-up %s: protocol none has no requests; remove start.warmup", w.Method)
		}
		var err error
		if w.Notification {
			err = p.conn.Notify(ctx, request)
		} else {
			_, err = p.conn.Call(ctx, request)
		}
		if err != nil {
			return fmt.Errorf("warm-up %s: %w", w.Method, err)
		}
	}
	return nil
}

// markReady sets the time of readiness. It reports false if the process has exited or is being ended.
func (p *Process) markReady() bool {
	if sleep.Ended(p.exited) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.termination.stopped || p.termination.killed() {
		return false
	}
	p.readyAt = time.Now()
	return true
}

// awaitListening waits until the program passes its health probe. Without a fixed health.port the program must listen
// on its socket or its port; the first that accepts a connection is the worker's address. If ctx ends first, the error
// is that of the last probe that completed: an interrupted probe knows less.
func (p *Process) awaitListening(ctx context.Context) error {
	var lastErr error
	var foreignSince time.Time
	for delay := minListenPoll; ; delay = min(2*delay, maxListenPoll) {
		switch foreign := p.findAddress(ctx); {
		case !foreign:
			foreignSince = time.Time{}
		case foreignSince.IsZero():
			foreignSince = time.Now()
		case time.Since(foreignSince) > foreignListenerTimeout:
			return fmt.Errorf(
				"another program listens on %s, the port assigned to this worker; the next start gets another port",
				p.plan.address.tcp())
		}
		started := time.Now()
		err := p.Probe(ctx)
		exited := errors.Is(err, ErrUnavailable)
		if exited {
			err = errExitedEarly
		}
		if err == nil {
			if p.Info().Address == "" && foreignSince.IsZero() {
				// it does not listen on its port or socket yet, or never will
				p.setAddress(address{port: cmp.Or(p.spec.Health.Port, p.plan.address.port)}.tcp())
			}
			if foreignSince.IsZero() {
				return nil
			}
			err = errForeignListener
		}
		if interrupted := exited || ctx.Err() != nil; !interrupted || lastErr == nil {
			lastErr = err
		} else {
			lastErr = fmt.Errorf("%w; the next probe was interrupted after %s", lastErr,
				time.Since(started).Round(time.Millisecond))
		}
		if !sleep.For(ctx.Done(), delay) {
			if p.Info().Address == "" {
				return fmt.Errorf("listens neither on %s nor on the socket $%s", p.plan.address.tcp(), EnvSocket)
			}
			return lastErr
		}
	}
}

// findAddress sets the address if the program listens. foreign means that another program listens on its port.
func (p *Process) findAddress(ctx context.Context) (foreign bool) {
	a := p.plan.address
	switch {
	case p.Info().Address != "":
	case p.accepts(ctx, a.socket):
		p.setAddress(a.socket)
	case !p.accepts(ctx, a.tcp()):
	case !p.ownsPort(a.port):
		return true
	default:
		p.setAddress(a.tcp())
	}
	return false
}

func (p *Process) accepts(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := p.Dial(ctx, addr)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// Dial connects to the program's address. It refuses the Unix socket of another program: the worker can put a link in
// the place of its own, and other programs, and the gateway, grant the agent what they do not grant the worker.
func (p *Process) Dial(ctx context.Context, addr string) (net.Conn, error) {
	network := "tcp"
	if filepath.IsAbs(addr) {
		network = "unix"
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if socket, ok := conn.(*net.UnixConn); ok && !p.ownsSocket(socket) {
		conn.Close()
		return nil, errForeignSocket
	}
	return conn, err
}

// ownsSocket reports whether the process that listens at the other end belongs to the tree, or has bound the program's
// own path, as one in a container does to which the path is mounted, or one that has ended and left the socket to its
// children. A program that does not serve this worker binds another path, and no link or new name changes that.
func (p *Process) ownsSocket(conn *net.UnixConn) bool {
	pid, _, known := tree.PeerOf(conn)
	return known && (contain([]*Process{p}, pid) || tree.PeerName(conn) == p.plan.address.socket)
}

func (p *Process) setAddress(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.address = addr
}
