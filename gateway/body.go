package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/tempool/tempool/api"
)

// readBody reads a request's body of at most limit bytes into memory of the budget's, which the caller gives back when it needs the
// body no more. A larger body is CodePayloadTooLarge; CodeUnavailable means that others take all of the budget.
func (g *Gateway) readBody(ctx context.Context, w http.ResponseWriter, r *http.Request, limit int64) (body []byte, giveBack func(), err error) {
	if r.ContentLength > limit {
		return nil, nil, tooLarge(limit)
	}
	in := http.MaxBytesReader(w, r.Body, limit)
	known := r.ContentLength >= 0
	claim := r.ContentLength
	if !known { // most are small, and those that are not may be as large as any
		if body, err = readUpTo(in, nil, bodyAllowance); err != nil || len(body) < bodyAllowance {
			return body, func() {}, bodyError(err, limit)
		}
		claim = limit
	}
	if giveBack, err = g.bodies.take(ctx, claim); err != nil {
		return nil, nil, err
	}
	if known {
		body = make([]byte, claim)
		_, err = io.ReadFull(in, body)
	} else {
		body, err = readUpTo(in, body, limit+1) // one more, so that the reader says that it is too much
	}
	if err != nil {
		giveBack()
		return nil, nil, bodyError(err, limit)
	}
	return body, giveBack, nil
}

// readUpTo reads on behind body until the end of in, or until body has most bytes.
func readUpTo(in io.Reader, body []byte, most int64) ([]byte, error) {
	for int64(len(body)) < most {
		if len(body) == cap(body) {
			bigger := make([]byte, len(body), min(most, max(4<<10, 4*int64(cap(body)))))
			copy(bigger, body)
			body = bigger
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

func bodyError(err error, limit int64) error {
	var over *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &over):
		return tooLarge(limit)
	}
	return api.Errorf(api.CodeInvalid, "the request's body cannot be read: %w", err)
}
