package api

import (
	"encoding/json"
	"fmt"
)

// WorkerError is a worker's own error: the worker read the call and failed it. An Error with CodeWorkerError wraps it;
// errors.As finds it.
type WorkerError struct {
	// Code is the worker's own word; for JSON-RPC it is the error's number as text.
	Code    string `json:"code"`
	Type    string `json:"type,omitempty"` // the exception's class in the worker's language
	Message string `json:"message"`
	// Traceback is empty if the program sent none, and for clients of a gateway that may not read the worker's log.
	Traceback string          `json:"traceback,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	// Fatal says that the worker asked to be replaced.
	Fatal bool `json:"fatal,omitempty"`
	// Unhandled says that the program did not raise the error on purpose: an exception that no handler caught.
	Unhandled bool `json:"unhandled,omitempty"`
}

func (e *WorkerError) Error() string {
	if e.Type != "" {
		return fmt.Sprintf("%s: %s: %s", e.Code, e.Type, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}
