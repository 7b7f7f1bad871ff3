// Package wire is the protocol between a host and one worker over byte streams: requests, responses, streams, cancels
// and pings.
//
// A Conn has one of two codecs: frames, the binary protocol of the SDKs (docs/protocol.md), or JSON-RPC 2.0 in three
// framings, with which any MCP or LSP server can be a worker. The package does not start or end processes: the owner of
// a Conn ends the worker's process when the Conn is Done.
package wire

import (
	"cmp"
	"context"
	"time"
)

// Request is one message to a worker. Headers and Payload must not change until the call returns.
type Request struct {
	// Method has 1 to MaxMethod bytes.
	Method string
	// Headers have at most MaxHeaders bytes in all. JSON-RPC sends traceparent and tracestate only, in params._meta.
	Headers map[string]string
	// Trace replaces traceparent and tracestate in Headers, unless it is zero.
	Trace Trace
	// Payload is opaque to frames. For JSON-RPC it is params: a JSON object or array, or empty or null for none.
	Payload []byte
}

// Response is a worker's response. It belongs to the caller.
type Response struct {
	// Headers is nil if the worker sent none, and always for JSON-RPC.
	Headers map[string]string
	// Payload is the body, for JSON-RPC the result.
	Payload []byte
}

// Defaults of Options, and the fixed limits of a message's parts.
const (
	DefaultMaxMessage  int64 = 64 << 20
	DefaultCancelGrace       = 5 * time.Second
	// MaxMethod and MaxHeaders bound a frame's method and encoded headers, in bytes.
	MaxMethod  = 1024
	MaxHeaders = 64 << 10
	// MaxControl bounds a hello or an error, in bytes, if Options.MaxMessage is smaller.
	MaxControl = 64 << 10
	// MaxInflightLimit caps Options.MaxInflight.
	MaxInflightLimit = 4096
	// MaxReason bounds the reason of a worker that reports itself unhealthy, in bytes; the rest is cut.
	MaxReason = 1 << 10
	// MaxHostCalls bounds the concurrent host calls of one worker; one more fails with CodeBusy.
	MaxHostCalls = 64
)

// Options tune a Conn. The zero value is ready to use.
type Options struct {
	// MaxMessage bounds the payload of a message in bytes, in both directions. Default: DefaultMaxMessage.
	MaxMessage int64
	// MaxInflight bounds the calls in flight; further calls queue. Default: 1.
	MaxInflight int
	// CancelGrace is how long the worker may take to respond to a cancelled call before the Conn breaks with
	// ErrUnanswered. Default: DefaultCancelGrace.
	CancelGrace time.Duration
	// PingMethod is the JSON-RPC request that serves as ping. Default: "ping". Frames have their own pings.
	PingMethod string
	// MCP says that the JSON-RPC server is an MCP server. A cancel is sent at once. One that has not responded to a
	// cancelled call within CancelGrace has given it up, as MCP asks of it: the Conn goes on, and drops a response that
	// comes later. A line of stdout that is not a message is output, whatever it begins with.
	MCP bool
	// MCPMeta is the member _meta of all messages of the Conn's own, as JSON, for an MCP server that takes none without
	// it. nil for any other.
	MCPMeta []byte
	// HostCall serves host calls of the worker; if it is nil they fail with CodeUnsupported. headers are those of the
	// request that the worker is serving, as this side sent them, so a worker cannot use another call's session; nil for a
	// host call outside of a call. ctx is the call's and also ends with the Conn. The worker gets a *RemoteError as it is,
	// any other error with CodeHostError. Frames only.
	HostCall func(ctx context.Context, method string, headers map[string]string, payload []byte) ([]byte, error)
	// OnUnhealthy gets why the program reports itself unhealthy, at most MaxReason bytes, on the reading goroutine: it
	// must not block. If it is nil the report is dropped. Frames only.
	OnUnhealthy func(reason string)
	// OnException gets the error of a call that has a traceback and that the program did not raise on purpose, on the
	// reading goroutine: it must neither block nor change the error. If it is nil only the caller gets it. Frames only.
	OnException func(*RemoteError)
	// OnOutput gets what a JSON-RPC program prints to stdout between its messages, line by line, on the reading goroutine:
	// it must neither block nor retain text. If it is nil the text is dropped.
	OnOutput func(text []byte)
}

// output passes on a line that is not a message.
func (o Options) output(text []byte) {
	if o.OnOutput != nil {
		o.OnOutput(text)
	}
}

func (o Options) withDefaults() Options {
	o.MaxMessage = min(cmp.Or(max(o.MaxMessage, 0), DefaultMaxMessage), 1<<31)
	o.MaxInflight = min(max(o.MaxInflight, 1), MaxInflightLimit)
	o.CancelGrace = cmp.Or(max(o.CancelGrace, 0), DefaultCancelGrace)
	o.PingMethod = cmp.Or(o.PingMethod, "ping")
	return o
}
