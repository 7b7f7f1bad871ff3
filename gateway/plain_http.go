package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/internal/transport"
	"github.com/tempool/tempool/process"
)

const (
	dialTimeout = 5 * time.Second
	// maxIdleConns bounds the idle connections to one worker of protocol none.
	maxIdleConns = 64
)

// plainUpstream sends calls to a worker of protocol none as plain HTTP, over TCP or a Unix socket.
type plainUpstream struct {
	process   *process.Process
	transport *http.Transport
}

func newPlainUpstream(p *process.Process) pool.PlainUpstream {
	return &plainUpstream{process: p, transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			return p.Dial(ctx, p.Info().Address) // known once the process is ready
		},
		MaxIdleConnsPerHost: maxIdleConns, IdleConnTimeout: time.Minute, DisableCompression: true,
	}}
}

// Close closes idle connections.
func (u *plainUpstream) Close() { u.transport.CloseIdleConnections() }

// host is the request's Host.
func (u *plainUpstream) host() string {
	if address := u.process.Info().Address; !filepath.IsAbs(address) {
		return address
	}
	return "localhost"
}

func (u *plainUpstream) url(method, query string) *url.URL {
	return &url.URL{Scheme: "http", Host: u.host(), Path: "/" + method, RawQuery: query}
}

// httpError codes a failure of plain HTTP; started says whether the worker may have seen the request.
func httpError(call *pool.Call, err error, started bool) *api.Error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		coded := pool.TooLarge(tooLarge.Limit)
		coded.Started = started
		return coded
	}
	return call.Fail(err, started)
}

func statusError(call *pool.Call, method string, status int) *api.Error {
	failed := api.Errorf(api.CodeWorkerError, "%s on %s answered %d %s", method, call.Worker(), status,
		http.StatusText(status))
	failed.Started = true
	return failed
}

// proxy forwards a request and its answer, both unbuffered, and completes the call.
func (u *plainUpstream) proxy(w http.ResponseWriter, r *http.Request, call *pool.Call, method string) {
	// The proxy panics to abort a response that was cut off. The call must be completed then, too.
	var failure *api.Error
	var body answerBody
	completed := false
	ctx, sent := transport.TraceSent(call.Context(), r.Header)
	defer func() {
		switch {
		case completed:
		case body.err != nil:
			failure = httpError(call, fmt.Errorf("the response was cut off: %w", body.err), true)
		case failure == nil:
			failure = httpError(call, pool.ErrClientGone, true)
		}
		call.CompleteAnswered(failure)
	}()
	proxy := httputil.ReverseProxy{
		Transport: u.transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(out *httputil.ProxyRequest) {
			out.Out.URL, out.Out.Host = u.url(method, r.URL.RawQuery), u.host()
			out.Out.Header.Del("Authorization") // it is the gateway's
			out.Out.Header.Del(api.HeaderLeaseToken)
			out.SetXForwarded()
			if callerOf(r) != nil { // the first gateway knows the client
				for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
					out.Out.Header[name] = r.Header[name]
				}
			}
		},
		ModifyResponse: func(answer *http.Response) error {
			setWorkerHeaders(answer.Header, call)
			if answer.StatusCode >= http.StatusInternalServerError {
				failure = statusError(call, method, answer.StatusCode)
			}
			if answer.StatusCode != http.StatusSwitchingProtocols { // then the body is a connection
				body.ReadCloser, answer.Body = answer.Body, &body
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			failure = httpError(call, err, sent())
			setWorkerHeaders(w.Header(), call)
			writeProblem(w, failure)
		},
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
	completed = true
}

// answerBody is the body of an answer that is forwarded. It remembers why it could not be read: a client that leaves is
// not a failure of the worker.
type answerBody struct {
	io.ReadCloser
	err error
}

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

// Send sends a POST; an answer with a status below 400 is the response, which is not streamed.
func (u *plainUpstream) Send(call *pool.Call, r pool.Request) (*pool.Response, error) {
	h := make(http.Header)
	for key, value := range r.Headers {
		h.Set(key, value)
	}
	ctx, sent := transport.TraceSent(call.Context(), h)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.url(r.Method, "").String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "method %q cannot be part of a URL: %w", r.Method, err)
	}
	request.Header = h
	setTrace(request.Header, r)
	if r.Session != "" {
		request.Header.Set(api.HeaderSession, r.Session)
	}
	answer, err := u.transport.RoundTrip(request)
	if err != nil {
		return nil, httpError(call, err, sent())
	}
	defer answer.Body.Close()
	response := &pool.Response{Worker: call.Worker(), Incarnation: call.Incarnation(),
		Headers: map[string]string{"content-type": answer.Header.Get("Content-Type")}}
	limit := call.MaxMessage()
	if response.Body, err = io.ReadAll(io.LimitReader(answer.Body, limit+1)); int64(len(response.Body)) > limit {
		tooLarge := api.Errorf(api.CodePayloadTooLarge, "the answer to %s is larger than %d bytes (pool.max_message)",
			r.Method, limit)
		tooLarge.Started = true
		return nil, tooLarge
	}
	if err != nil {
		return nil, httpError(call, fmt.Errorf("read the answer: %w", err), true)
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return nil, statusError(call, r.Method, answer.StatusCode)
	}
	return response, nil
}
