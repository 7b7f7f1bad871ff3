package api

import (
	"bytes"
	"encoding/json"
	"time"
)

// The messages of the activity Execute, by which a workflow in any language calls a pool. It is scheduled on PoolQueue(pool) with one
// argument, an ExecuteRequest, and its result is what the worker answered.

// MaxExecuteTimeoutMS is the longest an ExecuteRequest may ask for: a day.
const MaxExecuteTimeoutMS = int64(24 * time.Hour / time.Millisecond)

// ExecuteRequest is one call. Unknown keys are CodeInvalid, so that a misspelled one is noticed.
type ExecuteRequest struct {
	Method string `json:"method"`
	// Params is what the worker gets, any JSON; without it the worker gets an empty body.
	Params json.RawMessage `json:"params,omitempty"`
	// Session is the client's session: a call goes to the worker that served it last, if that one is free.
	Session string `json:"session,omitempty"`
	// TimeoutMS bounds the call, its wait for a worker in the agent included, in milliseconds. 0 is the time the activity itself has.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Idempotent says that a second run of the call does no harm. Then a failure after the worker may have seen the request is
	// retried, too, by the activity's own retry policy.
	Idempotent bool `json:"idempotent,omitempty"`
}

// Validate reports what is wrong with the request as CodeInvalid.
func (r ExecuteRequest) Validate() error {
	switch {
	case r.Method == "":
		return Errorf(CodeInvalid, `a call needs a method: {"method": "NAME", "params": …}`)
	case r.TimeoutMS < 0 || r.TimeoutMS > MaxExecuteTimeoutMS:
		return Errorf(CodeInvalid, "timeout_ms is %d; it must be from 0 (the activity's own time) to %d", r.TimeoutMS, MaxExecuteTimeoutMS)
	}
	return nil
}

// ParseExecuteRequest reads a request from JSON, strictly; what cannot be read is CodeInvalid.
func ParseExecuteRequest(text []byte) (r ExecuteRequest, err error) {
	if err := strictly(text, &r); err != nil {
		return r, Errorf(CodeInvalid, `the input of Execute is not {"method", "params", "session", "timeout_ms", "idempotent"}: %w`, err)
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
	// Began says that the worker may have seen the request. It is recorded before the request is sent, so that after the death of an
	// agent the next attempt knows.
	Began       bool   `json:"began"`
	Worker      string `json:"worker,omitempty"`
	Incarnation int64  `json:"incarnation,omitempty"`
	Host        string `json:"host,omitempty"`
}

// ExecuteFailure is the detail of a failed Execute. The failure's type is a Code.
type ExecuteFailure struct {
	// Started tells whether a worker may have seen the request.
	Started bool `json:"started"`
	// RetryAfterMS is a hint; the attempt that follows waits that long at least.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
	// WorkerError is the worker's own error, for CodeWorkerError: {code, type, message, traceback, data}.
	WorkerError json.RawMessage `json:"worker_error,omitempty"`
}

// ExecuteInput is the input of the workflow Execute: the pool, and the call.
type ExecuteInput struct {
	Pool string `json:"pool"`
	ExecuteRequest
}

// ParseExecuteInput reads an ExecuteInput from JSON, strictly; what cannot be read, or names no pool, is CodeInvalid.
func ParseExecuteInput(text []byte) (in ExecuteInput, err error) {
	if err := strictly(text, &in); err != nil {
		return in, Errorf(CodeInvalid, `the input is not {"pool", "method", "params", "session", "timeout_ms", "idempotent"}: %w`, err)
	}
	if !ValidPoolName(in.Pool) {
		return in, Errorf(CodeInvalid, "%q names no pool; a name is 1 to 63 of a-z, 0-9, '-' and '_'", in.Pool)
	}
	return in, in.Validate()
}
