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
	"github.com/tempool/tempool/process"
)

const (
	dialTimeout = 5 * time.Second
	// maxIdleConns bounds the unused connections kept to one worker of protocol none.
	maxIdleConns = 64
)

// transportTo speaks HTTP to a worker of protocol none, at host:port or at the path of a Unix socket, whichever it listens on.
func transportTo(p *process.Process) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			network, address := "tcp", p.Info().Address // it is known once the process is ready
			if filepath.IsAbs(address) {
				network = "unix"
			}
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, &dialError{err}
			}
			return conn, nil
		},
		MaxIdleConnsPerHost: maxIdleConns, IdleConnTimeout: time.Minute, DisableCompression: true,
	}
}

// dialError is a worker that could not even be reached.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// host is what a worker's program reads as the name it was called by.
func (s *seat) host() string {
	if address := s.process.Info().Address; !filepath.IsAbs(address) {
		return address
	}
	return "localhost"
}

func (s *seat) url(method, query string) *url.URL {
	return &url.URL{Scheme: "http", Host: s.host(), Path: "/" + method, RawQuery: query}
}

// failedHTTP codes a failure of plain HTTP to the worker.
func (f *flight) failedHTTP(method string, err error) error {
	var dial *dialError
	began := !errors.As(err, &dial)
	coded := f.code(method, err, began)
	coded.Started = began
	return coded
}

// proxy passes a request on to a worker of protocol none, and its answer back, bodies as they come.
func (f *flight) proxy(w http.ResponseWriter, r *http.Request, method string) error {
	s := f.seat
	var failure error
	proxy := httputil.ReverseProxy{
		Transport: s.transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(out *httputil.ProxyRequest) {
			out.Out.URL, out.Out.Host = s.url(method, r.URL.RawQuery), s.host()
			out.Out.Header.Del("Authorization") // it is the gateway's
			out.SetXForwarded()
		},
		ModifyResponse: func(answer *http.Response) error {
			f.name(answer.Header)
			if answer.StatusCode >= http.StatusInternalServerError {
				failure = f.failedStatus(method, answer.StatusCode)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			failure = f.failedHTTP(method, err)
			f.name(w.Header())
			writeProblem(w, failure)
		},
	}
	completed := false
	defer func() {
		if completed {
			return
		}
		// The proxy panics to abort an answer that broke off; the call must leave flight all the same.
		failure = f.failedHTTP(method, errBrokenOff)
		f.seat.desk.end(f, failure)
	}()
	proxy.ServeHTTP(w, r.WithContext(f.ctx))
	completed = true
	f.seat.desk.end(f, failure)
	return failure
}

var errBrokenOff = errors.New("the answer broke off")

func (f *flight) failedStatus(method string, status int) *api.Error {
	failed := api.Errorf(api.CodeWorkerError, "%s on %s answered %d %s", method, f.seat.worker, status, http.StatusText(status))
	failed.Started = true
	return failed
}

// runHTTP is run for protocol none: a POST whose answer below 400 is the response.
func (f *flight) runHTTP(r Request) (*Response, error) {
	s := f.seat
	request, err := http.NewRequestWithContext(f.ctx, http.MethodPost, s.url(r.Method, "").String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "%q cannot be part of a URL: %w", r.Method, err)
	}
	for key, value := range r.Headers {
		request.Header.Set(key, value)
	}
	if r.Session != "" {
		request.Header.Set(HeaderSession, r.Session)
	}
	answer, err := s.transport.RoundTrip(request)
	if err != nil {
		return nil, f.failedHTTP(r.Method, err)
	}
	defer answer.Body.Close()
	response := &Response{Worker: s.worker, Incarnation: s.incarnation, Headers: map[string]string{"content-type": answer.Header.Get("Content-Type")}}
	limit := int64(s.spec.Pool.MaxMessage)
	if r.OnChunk != nil {
		err = eachChunk(io.LimitReader(answer.Body, limit), r.OnChunk)
	} else if response.Body, err = io.ReadAll(io.LimitReader(answer.Body, limit+1)); int64(len(response.Body)) > limit {
		tooLong := api.Errorf(api.CodePayloadTooLarge, "the answer to %s is larger than pool.max_message (%s)", r.Method, s.spec.Pool.MaxMessage)
		tooLong.Started = true
		return nil, tooLong
	}
	if err != nil {
		return nil, f.failedHTTP(r.Method, fmt.Errorf("read the answer: %w", err))
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return nil, f.failedStatus(r.Method, answer.StatusCode)
	}
	return response, nil
}

// eachChunk gives what can be read to onChunk, piece by piece.
func eachChunk(in io.Reader, onChunk func([]byte) error) error {
	for {
		chunk := make([]byte, 32<<10)
		n, err := in.Read(chunk)
		if n > 0 {
			if err := onChunk(chunk[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
