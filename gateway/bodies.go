package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/dispatch"
)

const (
	// maxControlBody bounds the JSON body of a request that is not a call.
	maxControlBody = 1 << 20
	// uncountedBody is the size up to which a body is not counted against Limits.BodyBytes: each connection may have as much anyway.
	uncountedBody = 64 << 10
	// bodyMemoryTimeout bounds how long a request waits for memory.
	bodyMemoryTimeout = 30 * time.Second
)

// readBody reads a call's body of at most limit bytes. The caller calls release when it no longer needs the body. readBody fails with
// CodePayloadTooLarge for a larger body, and with CodeUnavailable if other requests use all of Limits.BodyBytes.
func (g *Gateway) readBody(ctx context.Context, w http.ResponseWriter, r *http.Request, limit int64) (body []byte, release func(), err error) {
	if r.ContentLength > limit {
		return nil, nil, dispatch.TooLarge(limit)
	}
	in := http.MaxBytesReader(w, r.Body, limit)
	known := r.ContentLength >= 0
	size := r.ContentLength
	if !known { // most are small, and a large one may be as large as the limit
		if body, err = readUpTo(in, nil, uncountedBody); err != nil || len(body) < uncountedBody {
			return body, func() {}, bodyError(err, limit)
		}
		size = limit
	}
	if release, err = g.reserveMemory(ctx, size); err != nil {
		return nil, nil, err
	}
	if known {
		body = make([]byte, size)
		_, err = io.ReadFull(in, body)
	} else {
		body, err = readUpTo(in, body, limit+1) // one more, so that the reader reports a body that is too large
	}
	if err != nil {
		release()
		return nil, nil, bodyError(err, limit)
	}
	return body, release, nil
}

// reserveMemory reserves memory for a body of n bytes; requests get it in the order of their arrival, so that small bodies do not starve
// a large one. A body larger than Limits.BodyBytes gets all of it.
func (g *Gateway) reserveMemory(ctx context.Context, n int64) (release func(), err error) {
	if n <= uncountedBody {
		return func() {}, nil
	}
	n = min(n, g.config.Limits.BodyBytes)
	ctx, cancel := context.WithTimeout(ctx, bodyMemoryTimeout)
	defer cancel()
	if err := g.bodies.Acquire(ctx, n); err != nil {
		return nil, api.Errorf(api.CodeUnavailable, "no memory for the request's body: other requests use all of it (--body-memory): %w", err).After(time.Second)
	}
	return func() { g.bodies.Release(n) }, nil
}

// readUpTo appends to body what in holds, until body has most bytes.
func readUpTo(in io.Reader, body []byte, most int64) ([]byte, error) {
	for int64(len(body)) < most {
		if len(body) == cap(body) {
			larger := make([]byte, len(body), min(most, max(4<<10, 4*int64(cap(body)))))
			copy(larger, body)
			body = larger
		}
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return body, nil
}

// bodyError codes the failure to read a call's body.
func bodyError(err error, limit int64) error {
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &tooLarge):
		return dispatch.TooLarge(limit)
	}
	return api.Errorf(api.CodeInvalid, "cannot read the request's body: %w", err)
}

// readSmall reads a body of at most limit bytes that is not a call's; advice completes the error of a larger one.
func readSmall(w http.ResponseWriter, r *http.Request, limit int64, advice string) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, api.Errorf(api.CodePayloadTooLarge, "the body is larger than %d bytes%s", limit, advice)
	case err != nil:
		return nil, api.Errorf(api.CodeInvalid, "cannot read the request's body: %w", err)
	}
	return body, nil
}

// readJSON reads a body of one JSON object without unknown keys. An empty body is an empty object.
func readJSON(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := readSmall(w, r, maxControlBody, "")
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return api.Errorf(api.CodeInvalid, "the body is not the expected JSON: %w", err)
	}
	if decoder.More() {
		return api.Errorf(api.CodeInvalid, "the body holds more than one JSON value")
	}
	return nil
}
