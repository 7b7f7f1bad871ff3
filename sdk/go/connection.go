package sdk

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/process/wire"
)

const (
	// readBuffer is the size of the buffer of the socket.
	readBuffer = 64 << 10
	// maxHostCallID is the largest id of a host call.
	maxHostCallID = 1<<30 - 1
	// stopDelay is how long a worker that stops begins further calls, for requests that were sent before the host knew.
	stopDelay = 10 * time.Millisecond
	// garbageMethod is the notification that asks to free memory. A method of this name in the program replaces it.
	garbageMethod = "tempool.gc"
)

// connection serves the frames of one host.
type connection struct {
	worker *Worker
	of     Embedding
	in     net.Conn

	outMu sync.Mutex
	out   io.WriteCloser // in itself for a pipe in memory

	maxMessage atomic.Int64
	calls      sync.WaitGroup  // and notifications
	others     sync.WaitGroup  // health functions, and the freeing of memory
	life       context.Context // of calls and health functions; it ends when the host is gone, or the worker stops
	end        context.CancelCauseFunc

	mu        sync.Mutex
	inFlight  map[uint32]context.CancelCauseFunc
	hostCalls map[uint32]chan hostAnswer
	lastCall  uint32 // id of the latest host call
	stopping  bool   // no call begins
}

type hostAnswer struct {
	payload []byte
	err     error
}

func newConnection(w *Worker, in net.Conn, out io.WriteCloser, of Embedding) *connection {
	c := &connection{
		worker: w, of: of, in: in, out: out,
		inFlight: make(map[uint32]context.CancelCauseFunc), hostCalls: make(map[uint32]chan hostAnswer),
	}
	c.maxMessage.Store(wire.DefaultMaxMessage)
	c.life, c.end = context.WithCancelCause(context.Background())
	return c
}

// serve says hello and serves until the host closes the connection or stop is called. It returns an error after a
// violation by the host.
func (c *connection) serve() error {
	hello, err := json.Marshal(map[string]any{"protocol": wire.ProtocolVersion, "sdk": "go/0.1.0",
		"methods": c.worker.names()})
	if err != nil {
		return fmt.Errorf("encode the hello: %w", err)
	}
	if err := c.send(wire.Frame{Type: wire.FrameHello, Payload: hello}); err != nil {
		return err
	}
	if c.worker == &program {
		c.worker.serving.Store(c)
	}
	err = c.read()
	c.end(errEnded) // nobody waits for answers: the host is gone, or has them all
	c.calls.Wait()
	c.others.Wait()
	_ = c.out.Close() // on an error the host has closed it
	_ = c.in.Close()
	if broken, ok := errors.AsType[*wire.ProtocolError](err); ok {
		return broken
	}
	return nil
}

// stop makes serve return once the calls already received are answered. They may call the host, so it is read until
// then.
func (c *connection) stop() {
	time.AfterFunc(stopDelay, func() {
		c.mu.Lock()
		c.stopping = true
		c.mu.Unlock()
		c.calls.Wait()
		_ = c.in.SetReadDeadline(time.Now())
	})
}

// begin runs a call or a notification on a goroutine of its own. It reports false if the worker stops.
func (c *connection) begin(run func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopping {
		c.calls.Go(run)
	}
	return !c.stopping
}

func (c *connection) read() error {
	in := bufio.NewReaderSize(c.in, readBuffer)
	for {
		frame, err := wire.ReadFrame(in, c.maxMessage.Load())
		if err != nil {
			return err
		}
		if err := c.handle(frame); err != nil {
			return err
		}
	}
}

func (c *connection) handle(f wire.Frame) error {
	switch f.Type {
	case wire.FrameHello:
		return c.hello(f.Payload)
	case wire.FrameRequest:
		return c.request(f)
	case wire.FrameNotify:
		c.notification(f)
	case wire.FrameCancel:
		c.cancel(f.ID)
	case wire.FramePing:
		return c.ping(f.ID)
	case wire.FrameHostResult, wire.FrameHostError:
		return c.hostAnswered(f)
	default:
		return &wire.ProtocolError{Reason: fmt.Sprintf("unexpected frame of type %d: only workers send it", f.Type)}
	}
	return nil
}

func (c *connection) hello(payload []byte) error {
	var hello struct {
		Protocol   int   `json:"protocol"`
		MaxMessage int64 `json:"max_message"`
	}
	switch err := json.Unmarshal(payload, &hello); {
	case err != nil || hello.MaxMessage <= 0:
		return &wire.ProtocolError{Reason: "malformed hello"}
	case hello.Protocol != wire.ProtocolVersion:
		return &wire.ProtocolError{Reason: fmt.Sprintf("the host has protocol version %d, this SDK has %d: build with the "+
			"SDK of the host's release",
			hello.Protocol, wire.ProtocolVersion)}
	}
	c.maxMessage.Store(hello.MaxMessage)
	return nil
}

func (c *connection) cancel(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stop, running := c.inFlight[id]; running {
		stop(errCancelled)
	}
}

// send writes one frame.
func (c *connection) send(f wire.Frame) error {
	data, err := wire.AppendFrame(nil, f)
	if err != nil {
		return err
	}
	c.outMu.Lock()
	defer c.outMu.Unlock()
	if _, err := c.out.Write(data); err != nil {
		return fmt.Errorf("write to the host: %w", err)
	}
	return nil
}

func (c *connection) sendError(id uint32, err error) error {
	return c.send(wire.Frame{Type: wire.FrameError, ID: id, Payload: errorPayload(context.Background(), err)})
}

// hostCall asks the host on behalf of a call in flight; id 0 means none.
func (c *connection) hostCall(ctx context.Context, id uint32, method string, params, result any) error {
	var payload []byte
	if params != nil {
		var err error
		if payload, err = json.Marshal(params); err != nil {
			return fmt.Errorf("encode the arguments of %s: %w", method, err)
		}
	}
	if limit := c.maxMessage.Load(); int64(len(payload)) > limit {
		return &HostError{Code: wire.CodeTooLarge,
			Message: fmt.Sprintf("arguments of %d bytes exceed the limit of %d", len(payload), limit)}
	}
	var headers map[string]string
	if id != 0 {
		headers = map[string]string{"call": strconv.FormatUint(uint64(id), 10)}
	}
	if c.life.Err() != nil {
		return errClosed
	}
	number, answered := c.beginHostCall()
	if err := c.send(wire.Frame{Type: wire.FrameHostCall, ID: number, Method: method, Headers: headers,
		Payload: payload}); err != nil {
		c.forgetHostCall(number)
		return err
	}
	select {
	case answer := <-answered:
		answered <- answer
	case <-ctx.Done():
	case <-c.life.Done():
	}
	var answer hostAnswer
	select {
	case answer = <-answered: // also one that came just before the end
	default: // else the answer still comes, and is dropped
		if c.life.Err() != nil {
			return errClosed
		}
		return context.Cause(ctx)
	}
	if answer.err != nil || result == nil {
		return answer.err
	}
	if err := json.Unmarshal(answer.payload, result); err != nil {
		return fmt.Errorf("decode the answer to %s: %w", method, err)
	}
	return nil
}

func (c *connection) beginHostCall() (uint32, chan hostAnswer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for taken := true; taken; _, taken = c.hostCalls[c.lastCall] {
		c.lastCall = c.lastCall%maxHostCallID + 1
	}
	answered := make(chan hostAnswer, 1)
	c.hostCalls[c.lastCall] = answered
	return c.lastCall, answered
}

func (c *connection) forgetHostCall(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.hostCalls, id)
}

func (c *connection) hostAnswered(f wire.Frame) error {
	c.mu.Lock()
	answered, asked := c.hostCalls[f.ID]
	delete(c.hostCalls, f.ID)
	c.mu.Unlock()
	if !asked {
		return &wire.ProtocolError{Reason: fmt.Sprintf("an answer to the unknown host call %d", f.ID)}
	}
	answer := hostAnswer{payload: f.Payload}
	if f.Type == wire.FrameHostError {
		refused := wire.RemoteError{}
		if err := json.Unmarshal(f.Payload, &refused); err != nil {
			refused = wire.RemoteError{Code: wire.CodeHostError, Message: "the host sent an error that is not JSON"}
		}
		answer.err = &HostError{Code: refused.Code, Message: refused.Message}
	}
	answered <- answer
	return nil
}

// notification runs a handler whose result nobody gets.
func (c *connection) notification(f wire.Frame) {
	h, found := c.worker.method(f.Method)
	switch {
	case !found && f.Method == garbageMethod:
		c.others.Go(debug.FreeOSMemory)
		return
	case !found:
		c.of.logf("notification for the unknown method %q dropped", f.Method)
		return
	}
	c.begin(func() {
		ctx, call := c.newCall(context.Background(), f)
		_, failure := run(ctx, h, f.Payload, func([]byte) error { return nil })
		if failure != nil {
			c.of.logf("notification %s failed: %v", f.Method, failure)
		}
		if err := call.reportCounts(ctx); err != nil {
			c.of.logf("counters of the notification %s are lost: %v", f.Method, err)
		}
		c.of.panicked(failure)
	})
}
