package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/wire"
)

// Codes that only HTTP has a use for.
const (
	codeNotFound         api.Code = "not_found"          // no such route
	codeMethodNotAllowed api.Code = "method_not_allowed" // the route takes another method
	codeUnauthorized     api.Code = "unauthorized"
	codeForbidden        api.Code = "forbidden"
	codeInternal         api.Code = "internal"
	codeSlowReader       api.Code = "slow_reader" // a streamed answer was read so slowly that it was cut
)

// Problem is the body of every error, application/problem+json as in RFC 9457. Type is about:blank, so Title is the status's own.
type Problem struct {
	Title  string   `json:"title"`
	Status int      `json:"status"`
	Detail string   `json:"detail"`
	Code   api.Code `json:"code"`
	// Started tells whether a worker may have seen the request; only an unstarted call is safe to send again.
	Started bool `json:"started"`
	// RetryAfterMS is the header Retry-After, which knows whole seconds only, exactly.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
	// Host and Endpoint tell where a lease is to be used that is not this host's.
	Host     string `json:"host,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
	// Gateways, for code no_workers, are those that serve the pool while this one does not: the one with the most workers in service
	// first. A client that may go elsewhere calls one of them.
	Gateways []Peer `json:"gateways,omitempty"`
	// WorkerError is the worker's own error, for code worker_error.
	WorkerError *wire.RemoteError `json:"worker_error,omitempty"`
}

var statuses = map[api.Code]int{
	api.CodePoolNotFound: http.StatusNotFound, api.CodeWorkerNotFound: http.StatusNotFound,
	api.CodeLeaseNotFound: http.StatusNotFound, codeNotFound: http.StatusNotFound,
	api.CodeLeaseFenced: http.StatusConflict, api.CodePoolExists: http.StatusConflict, api.CodeSuperseded: http.StatusConflict,
	api.CodeQueueFull: http.StatusTooManyRequests, api.CodeRateLimited: http.StatusTooManyRequests,
	api.CodeQueueTimeout: http.StatusServiceUnavailable, api.CodeNoWorkers: http.StatusServiceUnavailable,
	api.CodeUnavailable: http.StatusServiceUnavailable, api.CodeBusy: http.StatusServiceUnavailable,
	api.CodeDegraded: http.StatusServiceUnavailable, api.CodeDraining: http.StatusServiceUnavailable,
	api.CodeSuspended: http.StatusServiceUnavailable, api.CodeStarting: http.StatusServiceUnavailable,
	api.CodeFailed: http.StatusServiceUnavailable, api.CodeContinuing: http.StatusServiceUnavailable,
	api.CodeDeadlineExceeded: http.StatusGatewayTimeout,
	api.CodeWorkerCrashed:    http.StatusBadGateway, api.CodeStartFailed: http.StatusBadGateway,
	api.CodeWorkerError:     http.StatusInternalServerError,
	api.CodePayloadTooLarge: http.StatusRequestEntityTooLarge,
	api.CodeInvalid:         http.StatusBadRequest,
	codeMethodNotAllowed:    http.StatusMethodNotAllowed,
	codeUnauthorized:        http.StatusUnauthorized,
	codeSlowReader:          http.StatusRequestTimeout,
	codeForbidden:           http.StatusForbidden,
	api.CodeCancelled:       499, // as nginx has it: the client closed the connection, so nobody reads this one
	api.CodeSessionNotFound: http.StatusNotFound, api.CodeProgramNotFound: http.StatusNotFound,
	api.CodeSessionExists: http.StatusPreconditionFailed, api.CodeVersionConflict: http.StatusPreconditionFailed,
	api.CodeStoreFull: http.StatusInsufficientStorage, api.CodeStoreUnavailable: http.StatusServiceUnavailable,
}

// Peer is the gateway of another host.
type Peer struct {
	Host string `json:"host"`
	// Endpoint is the base URL of calls: http://HOST:PORT, https://HOST:PORT or unix:PATH.
	Endpoint string `json:"endpoint"`
}

// elsewhere is a lease, or a pool, that other hosts' gateways serve.
type elsewhere struct {
	coded          *api.Error
	host, endpoint string
	gateways       []Peer
}

func (e elsewhere) Unwrap() error { return e.coded }

func (e elsewhere) Error() string { return e.coded.Error() }

// problemOf describes err; what has no code is internal.
func problemOf(err error) Problem {
	p := Problem{Code: codeInternal, Detail: err.Error(), Status: http.StatusInternalServerError}
	var coded *api.Error
	if errors.As(err, &coded) {
		p.Code, p.Detail, p.Started = coded.Code, coded.Message, coded.Started
		p.RetryAfterMS = coded.RetryAfter.Milliseconds()
		if status, known := statuses[coded.Code]; known {
			p.Status = status
		}
	} else if errors.Is(err, context.DeadlineExceeded) {
		p.Code, p.Status = api.CodeDeadlineExceeded, http.StatusGatewayTimeout
	} else if errors.Is(err, context.Canceled) {
		p.Code, p.Status = api.CodeCancelled, statuses[api.CodeCancelled]
	}
	var other elsewhere
	if errors.As(err, &other) {
		p.Host, p.Endpoint, p.Gateways = other.host, other.endpoint, other.gateways
	}
	if p.Code == api.CodeWorkerError {
		errors.As(err, &p.WorkerError)
	}
	if p.Title = http.StatusText(p.Status); p.Title == "" {
		p.Title = "Client Closed Request"
	}
	return p
}

// writeProblem answers with err.
func writeProblem(w http.ResponseWriter, err error) {
	p := problemOf(err)
	header := w.Header()
	if p.RetryAfterMS > 0 || p.Status == http.StatusTooManyRequests {
		header.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(float64(p.RetryAfterMS)/1000)))))
	}
	header.Del("Content-Length")
	header.Set("Content-Type", "application/problem+json")
	header.Set("Cache-Control", "no-store")
	if p.WorkerError != nil && !json.Valid(p.WorkerError.Data) {
		failure := *p.WorkerError
		failure.Data = nil
		p.WorkerError = &failure
	}
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte(`{"title":"Internal Server Error","status":500,"code":"internal","detail":"the error itself cannot be told as JSON","started":true}`)
		p.Status = http.StatusInternalServerError
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // a client that is gone reads nothing
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
