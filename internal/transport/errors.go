package transport

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tempool/tempool/api"
)

// Error is the failure of a request that no gateway answered; message says what failed, and started whether a worker
// may have seen it.
func Error(ctx context.Context, err error, message string, started bool) *api.Error {
	if inURL, ok := errors.AsType[*url.Error](err); ok { // its text repeats the URL
		err = inURL.Err
	}
	code := api.CodeUnavailable
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		code, err, message = api.CodeDeadlineExceeded, ctx.Err(), "the call timed out"
	case ctx.Err() != nil:
		code, err, message = api.CodeCancelled, ctx.Err(), "the caller cancelled the call"
	}
	hint := ""
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) { // ErrNotExist: no such socket
		hint = "; is an agent running there?"
	}
	failure := api.Errorf(code, "%s: %w%s", message, err, hint)
	failure.Started = started
	return failure
}

// MayHaveStarted reports whether a worker may have seen the call that failed with err; without a code nobody knows, so
// it may.
func MayHaveStarted(err error) bool {
	coded, ok := errors.AsType[*api.Error](err)
	return !ok || coded.Started
}

// OtherGateways lists the gateways that the answering gateway referred to, for a call that no worker has seen.
func OtherGateways(err error) []string {
	if coded, ok := errors.AsType[*api.Error](err); ok && !coded.Started {
		return coded.Gateways
	}
	return nil
}

// Problem parses a gateway's error (RFC 9457, with our code). If the answer does not say whether a worker may have seen
// the call, one may have.
func Problem(response *http.Response, content []byte) *api.Error {
	var parsed struct {
		Code         api.Code         `json:"code"`
		Detail       string           `json:"detail"`
		Started      *bool            `json:"started"`
		RetryAfterMS int64            `json:"retry_after_ms"`
		WorkerError  *api.WorkerError `json:"worker_error"`
		Endpoint     string           `json:"endpoint"` // of the gateway that has the lease
		Gateways     []struct {
			Endpoint string `json:"endpoint"`
		} `json:"gateways"` // with workers of the pool
	}
	if json.Unmarshal(content, &parsed) != nil || parsed.Code == "" {
		if response.StatusCode == http.StatusRequestHeaderFieldsTooLarge { // net/http's answer, before the gateway sees it
			return api.Errorf(api.CodePayloadTooLarge,
				"the request's line and headers are too large: a gateway accepts 64 KiB (%s)", response.Status)
		}
		failure := api.Errorf(api.CodeUnavailable, "the answer is truncated or not from a Tempool gateway: %s",
			response.Status)
		failure.Started = true
		return failure
	}
	failure := &api.Error{Code: parsed.Code, Message: cmp.Or(parsed.Detail, response.Status),
		Started: parsed.Started == nil || *parsed.Started}
	failure.RetryAfter = time.Duration(parsed.RetryAfterMS) * time.Millisecond
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && failure.RetryAfter <= 0 {
		failure.RetryAfter = time.Duration(max(0, seconds)) * time.Second
	}
	if parsed.Endpoint != "" {
		failure.Gateways = append(failure.Gateways, parsed.Endpoint)
	}
	for _, other := range parsed.Gateways {
		failure.Gateways = append(failure.Gateways, other.Endpoint)
	}
	switch parsed.Code {
	case "not_found", "method_not_allowed": // there is no such route, and this client knows those of its own build
		failure.Message += "; an agent of an older build than this client lacks routes: upgrade it"
	}
	if parsed.WorkerError != nil {
		failure.Err = parsed.WorkerError
		if !strings.Contains(failure.Message, parsed.WorkerError.Message) {
			failure.Message += ": " + parsed.WorkerError.Message
		}
	}
	return failure
}
