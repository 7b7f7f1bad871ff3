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
	"github.com/tempool/tempool/gateway/pool"
)

const (
	// maxControlBody bounds the JSON body of a request that is not a call.
	maxControlBody = 1 << 20
	// bodyIdleTimeout bounds how long a client may send nothing of a body.
	bodyIdleTimeout = 15 * time.Second
)

// readBody reads a body of at most limit bytes; its memory is freed at the end of the request. It fails with
// CodePayloadTooLarge for a larger body, and with CodeUnavailable if other requests use all of Limits.BodyBytes, at the
// latest by the given time.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, by time.Time) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, pool.TooLarge(limit)
	}
	in := bodyReader{in: r.Body, w: w, until: time.Now().Add(requestTimeout(r))}
	size := r.ContentLength
	if size < 0 {
		in.in = http.MaxBytesReader(w, r.Body, limit)
		size = limit + 1 // one more, so that the reader reports a body that is too large
	}
	var body []byte
	share := connectionOf(r).share
	for int64(len(body)) < size {
		if len(body) == cap(body) {
			larger := nextCapacity(int64(cap(body)), size, r.ContentLength >= 0)
			if larger > uncountedBytes {
				ctx, stop := context.WithDeadline(r.Context(), by)
				err := share.growBody(ctx, larger-share.body)
				stop()
				if err != nil {
					return nil, err
				}
			}
			grown := make([]byte, len(body), larger)
			copy(grown, body)
			body = grown
		}
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) && (r.ContentLength < 0 || int64(len(body)) == size) {
			break
		}
		if err != nil {
			return nil, bodyError(err, limit)
		}
	}
	if body == nil {
		body = []byte{}
	}
	connectionOf(r).body = body // if the request must be forwarded
	return body, nil
}

// nextCapacity is how much to allocate for a body of which now bytes have arrived. An announced size is believed up to
// uncountedBytes.
func nextCapacity(now, size int64, announced bool) int64 {
	if announced && size <= uncountedBytes {
		return size
	}
	if announced {
		return min(size, max(uncountedBytes, 2*now))
	}
	return min(size, max(4<<10, 2*now))
}

// bodyReader reads a body whose client must send something within each bodyIdleTimeout, and everything until a time.
type bodyReader struct {
	in    io.Reader
	w     http.ResponseWriter
	until time.Time
	reads int
}

func (r *bodyReader) Read(p []byte) (int, error) {
	if r.reads++; r.reads > 1 { // most bodies come with their headers
		by := time.Now().Add(bodyIdleTimeout)
		if by.After(r.until) {
			by = r.until
		}
		_ = http.NewResponseController(r.w).SetReadDeadline(by) // the server ends it with the body
	}
	return r.in.Read(p)
}

// bodyError codes the failure to read a call's body.
func bodyError(err error, limit int64) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return pool.TooLarge(limit)
	}
	return api.Errorf(api.CodeInvalid, "cannot read the request's body: %w", err)
}

// readSmall reads a body of at most limit bytes that is not a call's; advice completes the error of a larger one.
func readSmall(w http.ResponseWriter, r *http.Request, limit int64, advice string) ([]byte, error) {
	body, err := readBody(w, r, limit, time.Now().Add(requestTimeout(r)))
	if errors.Is(err, api.ErrPayloadTooLarge) {
		return nil, api.Errorf(api.CodePayloadTooLarge, "the body is larger than %d bytes%s", limit, advice)
	}
	return body, err
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
