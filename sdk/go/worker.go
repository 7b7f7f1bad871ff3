// Package sdk makes a Go program a worker of a Tempool pool.
//
//	func main() {
//		sdk.Method("square", func(ctx context.Context, x float64) (float64, error) { return x * x, nil })
//		sdk.Run()
//	}
//
// Calls run concurrently, up to the spec's max_inflight. The context of a call ends when its caller cancels it or its
// deadline passes; FromContext returns the rest of what belongs to it.
package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tempool/tempool/process/wire"
)

// Worker holds the methods and hooks of one program. The functions of this package use a default Worker. A program that
// runs workers within its own process, as an agent does for pools of kind "function", makes others and calls Serve. The
// zero value is ready to use.
type Worker struct {
	mu      sync.Mutex
	methods map[string]handler
	onStart []func(context.Context) error
	onStop  []func() error

	onHealth []func(context.Context) error
	serving  atomic.Pointer[connection] // once the hello is sent
}

// handler serves one request: it returns the payload of the response. send sends a piece of a stream.
type handler func(ctx context.Context, body []byte, send func([]byte) error) ([]byte, error)

var program Worker

// Default returns the Worker that the functions of this package use.
func Default() *Worker { return &program }

// add registers a handler. A name that cannot be used is a mistake of the program, so it panics.
func (w *Worker) add(name string, h handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(name) < 1 || len(name) > wire.MaxMethod {
		panic(fmt.Sprintf("a method name must have 1 to %d bytes: %.40q", wire.MaxMethod, name))
	}
	if _, taken := w.methods[name]; taken {
		panic(fmt.Sprintf("method %q is already defined", name))
	}
	if w.methods == nil {
		w.methods = make(map[string]handler)
	}
	w.methods[name] = h
}

// names returns the methods in alphabetical order.
func (w *Worker) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.methods))
}

func (w *Worker) method(name string) (handler, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h, found := w.methods[name]
	return h, found
}

// OnStart registers a function that runs before the worker is ready. If it fails, so does the start.
func OnStart(fn func(ctx context.Context) error) { program.onStart = append(program.onStart, fn) }

// OnStop registers a function that runs when the worker stops, after its last call.
func OnStop(fn func() error) { program.onStop = append(program.onStop, fn) }

// OnHealth registers a function that runs in each health check of kind "rpc", beside the calls. If it fails, so does
// the check, with its error. Its context ends with the worker; a function that ignores that delays the stop.
func OnHealth(fn func(ctx context.Context) error) { program.onHealth = append(program.onHealth, fn) }

// Unhealthy reports this worker unhealthy, which counts at once as a failed health check: the worker gets no new call
// until a check passes, and after health.max_failures in a row Tempool replaces the process. Within 5 seconds several
// reports count once. It fails before Run serves, and once the host is gone.
func Unhealthy(reason string) error {
	c := program.serving.Load()
	if c == nil {
		return errors.New("call Unhealthy after Run has started; before that, return an error from an OnStart function")
	}
	report, err := json.Marshal(map[string]string{"reason": cut(reason, wire.MaxReason)})
	if err != nil {
		return err
	}
	return c.send(wire.Frame{Type: wire.FrameNotify, Method: wire.UnhealthyMethod, Payload: report})
}

// OnSessionRelease registers a function that runs before a session moves from this worker to another, as a call of that
// session: write what this process keeps of it to the session. If it fails, the session stays.
func OnSessionRelease(fn func(ctx context.Context, id string) error) {
	hook("session.release", fn)
}

// OnSessionLoad registers a function that runs after a session has moved to this worker, before its next call, as a
// call of that session. If it fails, the move is undone.
func OnSessionLoad(fn func(ctx context.Context, id string) error) { hook("session.load", fn) }

// OnLeaseReset registers a function that runs after a lease has expired, if the spec has lease.on_expiry = "reset":
// forget what that client left behind. If it fails, Tempool replaces the process.
func OnLeaseReset(fn func(ctx context.Context) error) {
	hook("lease.reset", func(ctx context.Context, _ string) error { return fn(ctx) })
}

// OnSuspend registers a function that runs when an operator suspends this worker, after its last call: release what
// others could use meanwhile. It has the spec's health.timeout; then the worker is suspended while the function keeps
// running, and ctx is done when the worker resumes.
func OnSuspend(fn func(ctx context.Context) error) {
	hook("worker.suspend", func(ctx context.Context, _ string) error { return fn(ctx) })
}

// OnResume registers a function that runs when a suspended worker resumes, before its next call. ctx is done after the
// spec's health.timeout.
func OnResume(fn func(ctx context.Context) error) {
	hook("worker.resume", func(ctx context.Context, _ string) error { return fn(ctx) })
}

func hook(name string, fn func(context.Context, string) error) {
	Method(name, func(ctx context.Context, id string) (any, error) { return nil, fn(ctx, id) })
}

// ping answers a ping: with an error if a function of OnHealth fails.
func (c *connection) ping(id uint32) error {
	hooks := c.worker.onHealth
	if len(hooks) == 0 {
		return c.send(wire.Frame{Type: wire.FramePong, ID: id})
	}
	c.others.Go(func() {
		answer := wire.Frame{Type: wire.FramePong, ID: id}
		for _, hook := range hooks {
			if err := guarded(func() error { return hook(c.life) }); err != nil {
				answer = wire.Frame{Type: wire.FrameError, ID: id, Payload: errorPayload(context.Background(), err)}
				break
			}
		}
		if err := c.send(answer); err != nil && c.life.Err() == nil {
			c.of.logf("a ping is not answered: %v", err)
		}
	})
	return nil
}
