package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/statuses"
	"github.com/tempool/tempool/process/wire"
)

// Codes that exist in HTTP only.
const (
	codeNotFound                  = statuses.CodeNotFound
	codeMethodNotAllowed          = statuses.CodeMethodNotAllowed
	codeInternal         api.Code = "internal"
)

// Problem is the body of every error, application/problem+json of RFC 9457. Its type is about:blank, so Title is that
// of the status.
type Problem struct {
	Title  string   `json:"title"`
	Status int      `json:"status"`
	Detail string   `json:"detail"`
	Code   api.Code `json:"code"`
	// Started reports whether a worker may have seen the request. Only an unstarted call is safe to retry.
	Started bool `json:"started"`
	// RetryAfterMS is the header Retry-After in milliseconds.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
	// Host and Endpoint name the host of a lease that is not on this one.
	Host     string `json:"host,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
	// Gateways, for code no_workers, serve the pool while this one does not; the one with the most workers in service is
	// first.
	Gateways []api.Peer `json:"gateways,omitempty"`
	// WorkerError is the worker's own error, for the codes worker_error and method_not_found.
	WorkerError *wire.RemoteError `json:"worker_error,omitempty"`
}

// problemOf describes err. An error without a code is internal.
func problemOf(err error) Problem {
	p := Problem{Code: codeInternal, Detail: err.Error(), Status: http.StatusInternalServerError}
	if coded, ok := errors.AsType[*api.Error](err); ok {
		p.Code, p.Detail, p.Started = coded.Code, coded.Message, coded.Started
		p.RetryAfterMS = coded.RetryAfter.Milliseconds()
		if status, known := statuses.Of[coded.Code]; known {
			p.Status = status
		}
	} else if errors.Is(err, context.DeadlineExceeded) {
		p.Code, p.Status = api.CodeDeadlineExceeded, http.StatusGatewayTimeout
	} else if errors.Is(err, context.Canceled) {
		p.Code, p.Status = api.CodeCancelled, statuses.Of[api.CodeCancelled]
	}
	if other, ok := errors.AsType[api.OtherHostError](err); ok {
		p.Host, p.Endpoint, p.Gateways = other.Host, other.Endpoint, other.Gateways
	}
	if remote, ok := errors.AsType[*wire.RemoteError](err); ok &&
		(p.Code == api.CodeWorkerError || p.Code == api.CodeMethodNotFound) {
		shown := *remote
		if !json.Valid(shown.Data) {
			shown.Data = nil
		}
		p.WorkerError = &shown
	}
	if p.Title = http.StatusText(p.Status); p.Title == "" {
		p.Title = "Client Closed Request"
	}
	return p
}

// writeProblem answers with err.
func writeProblem(w http.ResponseWriter, err error) { problemOf(err).write(w) }

func (p Problem) write(w http.ResponseWriter) {
	header := w.Header()
	if p.RetryAfterMS > 0 || p.Status == http.StatusTooManyRequests {
		header.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(float64(p.RetryAfterMS)/1000)))))
	}
	header.Del("Content-Length")
	header.Set("Content-Type", "application/problem+json")
	header.Set("Cache-Control", "no-store")
	body, _ := json.Marshal(p) // problemOf has left out what is no JSON
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // fails only if the client is gone
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		writeProblem(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
