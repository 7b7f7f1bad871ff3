// Package wire speaks with one subprocess over byte streams: requests, responses, streams, cancels and pings.
//
// Two dialects share one Conn: frames, the binary protocol of the SDKs (docs/protocol.md), and JSON-RPC 2.0 in three
// framings, which makes any MCP or LSP server a worker. The package knows no process: who holds a Conn also holds the
// process behind it, and ends that process when the Conn is Done.
package wire

import (
	"context"
	"time"
)

// Request is one message to a worker. Headers and Payload must not change until the call that was given them returns.
type Request struct {
	// Method names what to run; at most MaxMethod bytes, never empty.
	Method string
	// Headers travel beside the payload: at most MaxHeaders bytes in all. JSON-RPC has no place for them and sends none.
	Headers map[string]string
	// Payload is opaque to frames; for JSON-RPC it is params: a JSON object or array, or empty or null for none.
	Payload []byte
}

// Response is a worker's answer. It belongs to the caller.
type Response struct {
	// Headers is nil when the worker sent none, as JSON-RPC workers always do.
	Headers map[string]string
	// Payload is the body, for JSON-RPC the result.
	Payload []byte
}

// Conn is one worker's connection. All methods may be called by many goroutines at once.
//
// A failure of Call or Stream is either a *RemoteError, the worker's own answer, or a *CallError, everything else.
// A message that is malformed, oversized or unsolicited breaks the Conn: nothing read after it could be trusted.
type Conn interface {
	// Call sends a request and waits for its response. It waits while MaxInflight calls are in flight. When ctx ends first, the
	// call is cancelled and Call returns at once with ctx's error in a CallError; its place stays taken until the worker answers.
	// Chunks that the worker streams are joined in front of the payload, up to MaxMessage bytes in all.
	Call(ctx context.Context, r Request) (*Response, error)
	// Stream is Call with the chunks given to onChunk, in order, as they arrive. onChunk owns the chunk and may block. With
	// MaxInflight 1 the worker is then slowed down; else up to StreamBuffer bytes wait for onChunk, so that other calls of this Conn
	// go on, and a stream that has more is cut with ErrSlowReader. An error of onChunk cancels the call and is returned in a CallError.
	Stream(ctx context.Context, r Request, onChunk func([]byte) error) (*Response, error)
	// Notify sends a request that has no answer. It returns once the bytes are on their way, and takes no place in flight.
	Notify(ctx context.Context, r Request) error
	// Ping waits for proof that the worker reads and answers. A worker that runs one call at a time answers after that call.
	// An unanswered ping breaks nothing; what it means is the caller's decision. Pings at the same time share one question.
	Ping(ctx context.Context) error
	// InFlight counts the calls whose answer is still due, cancelled ones included.
	InFlight() int
	// Done is closed when the Conn is broken or closed, and every call has been told or is about to be.
	Done() <-chan struct{}
	// Err says why the Conn is Done, and is nil before.
	Err() error
	// Close ends the Conn, closes the streams it was given and waits for its goroutines. It must not be called from HostCall or
	// OnNotification. The second and later calls do nothing.
	Close() error
}

// Defaults of Options, and the fixed limits of a message's parts.
const (
	DefaultMaxMessage  int64 = 64 << 20
	DefaultCancelGrace       = 5 * time.Second
	// DefaultStreamBuffer holds a moment of a fast stream; what waits is at most so much for each call in flight.
	DefaultStreamBuffer = 8 << 20
	// MaxMethod and MaxHeaders bound a frame's method and encoded headers, in bytes.
	MaxMethod  = 1024
	MaxHeaders = 64 << 10
	// MaxControl bytes fit into a hello or an error whatever Options.MaxMessage says.
	MaxControl = 64 << 10
	// MaxInflightLimit is the largest Options.MaxInflight; larger values are cut to it.
	MaxInflightLimit = 4096
	// MaxHostCalls bounds the host calls of one worker that run at once; one more is answered with CodeBusy.
	MaxHostCalls = 64
)

// Options tune a Conn. The zero value is ready to use.
type Options struct {
	// MaxMessage bounds the payload of a message in bytes, both ways; default DefaultMaxMessage.
	MaxMessage int64
	// MaxInflight calls may wait for their answer at once; further callers wait their turn or for their context. Default 1.
	MaxInflight int
	// CancelGrace is how long a cancelled call may take to be answered before the Conn breaks with ErrUnanswered; default
	// DefaultCancelGrace.
	CancelGrace time.Duration
	// StreamBuffer bounds, in bytes, what waits for a slow onChunk while other calls may be in flight; default DefaultStreamBuffer.
	StreamBuffer int
	// PingMethod is the JSON-RPC request that serves as ping, default "ping". Frames have pings of their own.
	PingMethod string
	// HostCall serves what the worker asks of its host; nil answers every such question with CodeUnsupported. headers are those of
	// the request that the worker is serving, as this side sent them, so a worker cannot borrow another call's session; nil when
	// the worker asks outside of a call. ctx is the call's and also ends with the Conn. A *RemoteError goes to the worker as it is,
	// any other error with CodeHostError. Frames only.
	HostCall func(ctx context.Context, method string, headers map[string]string, payload []byte) ([]byte, error)
	// OnNotification sees each notification of a JSON-RPC worker, on the reading goroutine: it must not block, nor keep params.
	// nil drops them.
	OnNotification func(method string, params []byte)
}

func (o Options) withDefaults() Options {
	if o.MaxMessage <= 0 {
		o.MaxMessage = DefaultMaxMessage
	}
	if o.MaxMessage > 1<<31 {
		o.MaxMessage = 1 << 31
	}
	o.MaxInflight = min(max(o.MaxInflight, 1), MaxInflightLimit)
	if o.CancelGrace <= 0 {
		o.CancelGrace = DefaultCancelGrace
	}
	if o.StreamBuffer <= 0 {
		o.StreamBuffer = DefaultStreamBuffer
	}
	if o.PingMethod == "" {
		o.PingMethod = "ping"
	}
	return o
}
