package api

import (
	"bytes"
	"encoding/json"
	"time"
)

// MaxExecuteTimeoutMS is the longest timeout of an ExecuteRequest: a day.
const MaxExecuteTimeoutMS = int64(24 * time.Hour / time.Millisecond)

// ExecuteRequest is the argument of the activity Execute, by which a workflow in any language calls a pool: one call.
// The activity runs on PoolQueue(pool), and its result is the worker's answer. Unknown keys are CodeInvalid, to catch
// misspellings.
type ExecuteRequest struct {
	Method string `json:"method"`
	// Params is the JSON that the worker receives; without it the body is empty.
	Params json.RawMessage `json:"params,omitempty"`
	// Session is the call's session: the gateway prefers the worker that served it last, if that one is free.
	Session string `json:"session,omitempty"`
	// Lease is the ID of a lease that the workflow holds. The activity then runs on the HostQueue of the lease's host.
	Lease string `json:"lease,omitempty"`
	// TimeoutMS bounds the call in milliseconds, its wait for a worker included. 0 means the activity's own timeout.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Idempotent says that a repeated call is harmless. The activity's retry policy then also applies to failures after
	// the worker may have seen the request.
	Idempotent bool `json:"idempotent,omitempty"`
}

// Validate returns CodeInvalid for a request without a method or with a timeout out of range.
func (r ExecuteRequest) Validate() error {
	switch {
	case r.Method == "":
		return Errorf(CodeInvalid, `method is missing; write {"method": "NAME", "params": …}`)
	case r.TimeoutMS < 0 || r.TimeoutMS > MaxExecuteTimeoutMS:
		return Errorf(CodeInvalid, "timeout_ms is %d; it must be from 0 (the activity's own timeout) to %d", r.TimeoutMS,
			MaxExecuteTimeoutMS)
	}
	return nil
}

// ParseExecuteRequest decodes and validates a request; invalid JSON and unknown keys are CodeInvalid.
func ParseExecuteRequest(text []byte) (r ExecuteRequest, err error) {
	if err := strictly(text, &r); err != nil {
		return r, Errorf(
			CodeInvalid,
			`the input of Execute is not {"method", "params", "session", "lease", "timeout_ms", "idempotent"}: %w`, err)
	}
	return r, r.Validate()
}

func strictly(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// ExecuteProgress is the detail of every heartbeat of Execute.
type ExecuteProgress struct {
	// Began says that the worker may have seen the request. The activity records it before it sends the request, for the
	// attempt after an agent's death.
	Began       bool   `json:"began"`
	Worker      string `json:"worker,omitempty"`
	Incarnation int64  `json:"incarnation,omitempty"`
	Host        string `json:"host,omitempty"`
}

// ExecuteFailure is the detail of a failed Execute. The type of the failure is a Code.
type ExecuteFailure struct {
	// Started says that a worker may have seen the request.
	Started bool `json:"started"`
	// RetryAfterMS is the least delay before the next attempt.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
	// WorkerError is the worker's own error, for CodeWorkerError: {code, type, message, traceback, data}.
	WorkerError json.RawMessage `json:"worker_error,omitempty"`
}

// ExecuteInput is the input of the workflow Execute: the pool, and the call.
type ExecuteInput struct {
	Pool string `json:"pool"`
	ExecuteRequest
}

// ParseExecuteInput decodes and validates an ExecuteInput; invalid JSON, unknown keys and an invalid pool name are
// CodeInvalid.
func ParseExecuteInput(text []byte) (in ExecuteInput, err error) {
	if err := strictly(text, &in); err != nil {
		return in, Errorf(CodeInvalid,
			`the input is not {"pool", "method", "params", "session", "timeout_ms", "idempotent"}: %w`, err)
	}
	if invalid := CheckPoolName(in.Pool, CodeInvalid); invalid != nil {
		return in, invalid
	}
	return in, in.Validate()
}
