package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Why a Conn is Done or a call failed. They are wrapped: use errors.Is.
var (
	ErrClosed        = errors.New("the host closed the connection")
	ErrPeerClosed    = errors.New("the worker closed the connection")
	ErrUnanswered    = errors.New("the worker did not respond to a cancelled call in time, so its state is unknown")
	ErrTooLarge      = errors.New("message too large; raise the limit or send less")
	ErrNotBegun      = errors.New("the worker is stopping and has not begun the call")
	ErrSlowReader    = errors.New("the stream was read too slowly: its buffer is full, and other calls share its worker")
	ErrInvalidParams = errors.New("JSON-RPC params must be a JSON object or array, or empty")
	ErrInvalidMethod = fmt.Errorf("a method name has 1 to %d bytes", MaxMethod)
)

// Codes of a RemoteError with a meaning in the protocol. Handlers may use their own codes.
const (
	CodeError          = "error"            // the handler raised an exception
	CodeMethodNotFound = "method_not_found" // no handler has this name
	CodeInvalidParams  = "invalid_params"   // the payload does not fit the handler
	CodeCancelled      = "cancelled"        // the call ended because it was cancelled
	CodeTooLarge       = "too_large"        // the result exceeds the host's limit
	CodeUnsupported    = "unsupported"      // the other side does not support this
	CodeBusy           = "busy"             // too many at once
	CodeHostError      = "host_error"       // a host call failed on the host
	CodeNotInCall      = "not_in_call"      // a host call named a call that is not in flight
)

// RemoteError is the worker's error response to a call.
type RemoteError struct {
	// Code is a word; for JSON-RPC it is the error's number as text.
	Code      string          `json:"code"`
	Type      string          `json:"type,omitempty"` // the exception's class in the worker's language
	Message   string          `json:"message"`
	Traceback string          `json:"traceback,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	// Fatal means that the worker asks to be replaced.
	Fatal bool `json:"fatal,omitempty"`
	// Unhandled means that the program did not raise the error on purpose.
	Unhandled bool `json:"unhandled,omitempty"`
	// NotBegun means that the worker, which ends, has not begun the call, and begins none any more. Call and Do fail
	// with a *CallError for it.
	NotBegun bool `json:"not_begun,omitempty"`
}

// MethodNotFound reports whether the worker has no such method, in either protocol.
func (e *RemoteError) MethodNotFound() bool {
	return e.Code == CodeMethodNotFound || e.Code == strconv.Itoa(codeMethodNotFound)
}

func (e *RemoteError) Error() string {
	if e.Type != "" {
		return fmt.Sprintf("%s: %s: %s", e.Code, e.Type, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// CallError is any failure of Call, Do, Notify and Ping except a RemoteError.
type CallError struct {
	// Started is false only if the worker has certainly not begun the call, so a retry on another worker is safe.
	Started bool
	Err     error
}

func (e *CallError) Error() string {
	if e.Started {
		return fmt.Sprintf("call failed after it was sent: %v", e.Err)
	}
	return fmt.Sprintf("call was not sent: %v", e.Err)
}

// Unwrap returns the cause: a context's error, one of this package's, or an operating system's.
func (e *CallError) Unwrap() error { return e.Err }

// ProtocolError breaks a Conn: the worker sent what its protocol does not allow.
type ProtocolError struct{ Reason string }

func (e *ProtocolError) Error() string { return "protocol violation by the worker: " + e.Reason }

func violation(format string, args ...any) error {
	return &ProtocolError{Reason: fmt.Sprintf(format, args...)}
}
