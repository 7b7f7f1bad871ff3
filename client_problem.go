package tempool

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
)

// WorkerError is the worker's own answer behind an Error with CodeWorkerError: it read the call and failed. errors.As finds it.
type WorkerError struct {
	// Code is a word of the worker's; for JSON-RPC it is the error's number as text.
	Code      string          `json:"code"`
	Type      string          `json:"type,omitempty"` // the exception's class in the worker's language
	Message   string          `json:"message"`
	Traceback string          `json:"traceback,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	// Fatal says that the worker asked to be replaced.
	Fatal bool `json:"fatal,omitempty"`
}

func (e *WorkerError) Error() string {
	if e.Type != "" {
		return fmt.Sprintf("%s: %s: %s", e.Code, e.Type, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// problemOf reads an error of a gateway (RFC 9457, with our code). Where it does not say whether a worker may have seen the call,
// one may have.
func problemOf(response *http.Response, text []byte) *api.Error {
	var told struct {
		Code         api.Code     `json:"code"`
		Detail       string       `json:"detail"`
		Started      *bool        `json:"started"`
		RetryAfterMS int64        `json:"retry_after_ms"`
		WorkerError  *WorkerError `json:"worker_error"`
		Endpoint     string       `json:"endpoint"` // where the lease is to be used
		Gateways     []struct {
			Endpoint string `json:"endpoint"`
		} `json:"gateways"` // that have workers of the pool
	}
	if json.Unmarshal(text, &told) != nil || told.Code == "" {
		failure := api.Errorf(api.CodeUnavailable, "what answered was no gateway of Tempool, or its answer was cut short: %s", response.Status)
		failure.Started = true
		return failure
	}
	failure := &api.Error{Code: told.Code, Message: cmp.Or(told.Detail, response.Status), Started: told.Started == nil || *told.Started}
	failure.RetryAfter = time.Duration(told.RetryAfterMS) * time.Millisecond
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && failure.RetryAfter <= 0 {
		failure.RetryAfter = time.Duration(max(0, seconds)) * time.Second
	}
	if told.Endpoint != "" {
		failure.Gateways = append(failure.Gateways, told.Endpoint)
	}
	for _, other := range told.Gateways {
		failure.Gateways = append(failure.Gateways, other.Endpoint)
	}
	if told.WorkerError != nil {
		failure.Err = told.WorkerError
		if !strings.Contains(failure.Message, told.WorkerError.Message) {
			failure.Message += ": " + told.WorkerError.Message
		}
	}
	return failure
}

// gatewaysIn are the gateways to go to instead, if a gateway named some to a call that no worker has seen.
func gatewaysIn(err error) []string {
	var coded *api.Error
	if errors.As(err, &coded) && !coded.Started {
		return coded.Gateways
	}
	return nil
}
