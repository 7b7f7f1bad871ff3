package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// Pauses between two looks whether a program listens.
const (
	listenPauseFirst = 2 * time.Millisecond
	listenPauseMost  = 100 * time.Millisecond
)

var errEndedEarly = errors.New("it ended before it was ready")

// becomeReady waits for the handshake and runs the warm-up. It fails at once when the process ends.
func (p *Process) becomeReady(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-p.exited:
			cancel(errEndedEarly)
		case <-ctx.Done():
		}
	}()
	err := p.handshake(ctx)
	if err == nil {
		err = p.warmUp(ctx)
	}
	cancel(nil)
	<-watching
	return err
}

func (p *Process) handshake(ctx context.Context) error {
	if p.connErr != nil {
		return fmt.Errorf("open the protocol: %w", p.connErr)
	}
	switch p.spec.Pool.Protocol {
	case spec.ProtocolFrames:
		if err := wire.AwaitReady(ctx, p.conn); err != nil {
			return fmt.Errorf("wait for its hello: %w", err)
		}
	case spec.ProtocolNone:
		return p.awaitListening(ctx)
	}
	return nil
}

func (p *Process) warmUp(ctx context.Context) error {
	for _, w := range p.spec.Start.Warmup {
		request := wire.Request{Method: w.Method, Payload: w.Params}
		if len(request.Payload) == 0 {
			request.Payload = json.RawMessage("{}")
		}
		if p.conn == nil {
			return fmt.Errorf("warm-up %s: a program of protocol none takes no requests; remove start.warmup", w.Method)
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

// markReady reports whether the process is still there, and not about to be ended; the caller may hand it out then.
func (p *Process) markReady() bool {
	select {
	case <-p.exited:
		return false
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending.stopped || p.ending.kill != "" || p.ending.fault != "" {
		return false
	}
	p.readyAt = time.Now()
	return true
}

// awaitListening waits until the program passes its health probe, which for a program without a fixed health.port needs it to listen on
// its socket or its port. The one that answers first is the worker's address. Where ctx ends before that, the error is that of the last
// probe that came to an end: one that was cut off knows less.
func (p *Process) awaitListening(ctx context.Context) error {
	var verdict error
	for pause := listenPauseFirst; ; pause = min(2*pause, listenPauseMost) {
		p.findAddress(ctx)
		began := time.Now()
		err := p.Probe(ctx)
		if err == nil {
			if p.Info().Address == "" {
				p.setAddress(p.presumedAddress())
			}
			return nil
		}
		if cutOff := ctx.Err() != nil; !cutOff || verdict == nil {
			verdict = err
		} else {
			verdict = fmt.Errorf("%w; the probe after it was cut off after %s", verdict, time.Since(began).Round(time.Millisecond))
		}
		select {
		case <-ctx.Done():
			if p.Info().Address == "" {
				return fmt.Errorf("it listens neither on %s nor on the socket $%s", p.plan.address.tcp(), EnvSocket)
			}
			return verdict
		case <-time.After(pause):
		}
	}
}

// findAddress sets the address once the program listens.
func (p *Process) findAddress(ctx context.Context) {
	a := p.plan.address
	switch {
	case p.Info().Address != "":
	case accepts(ctx, "unix", a.socket):
		p.setAddress(a.socket)
	case accepts(ctx, "tcp", a.tcp()):
		p.setAddress(a.tcp())
	}
}

// presumedAddress is that of a healthy program which did not listen where it was told to, or does so later.
func (p *Process) presumedAddress() string {
	if port := p.spec.Health.Port; port != 0 {
		return address{port: port}.tcp()
	}
	return p.plan.address.tcp()
}

func accepts(ctx context.Context, network, where string) bool {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, network, where)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func (p *Process) setAddress(where string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.address = where
}
