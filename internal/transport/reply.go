package transport

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/tempool/tempool/api"
)

const (
	// maxAnswerBytes is the largest answer that ReadAll holds in memory.
	maxAnswerBytes = 1 << 30
	// preallocateBytes is the largest Content-Length that ReadAll allocates before the bytes have arrived.
	preallocateBytes = 1 << 20
)

// Reply is a gateway's answer with an unread body.
type Reply struct {
	*http.Response
	ctx     context.Context
	cancel  context.CancelFunc
	onClose func()
}

// OnClose sets what Close calls at the end; nil is nothing.
func (r *Reply) OnClose(f func()) { r.onClose = f }

// Close ends the request, even while the answer is still arriving.
func (r *Reply) Close() error {
	r.cancel()
	err := r.Body.Close()
	if r.onClose != nil {
		r.onClose()
	}
	return err
}

// Interrupted is the error for an answer whose body ended with err before it was complete.
func (r *Reply) Interrupted(err error) *api.Error {
	return Error(r.ctx, err, "connection lost while reading the answer", true)
}

// ReadAll reads the whole body and closes the reply. An answer above 1 GiB is CodePayloadTooLarge.
func (r *Reply) ReadAll() ([]byte, error) {
	defer r.Close()
	if n := r.ContentLength; n >= 0 && n <= preallocateBytes {
		content := make([]byte, n)
		if _, err := io.ReadFull(r.Body, content); err != nil {
			return nil, r.Interrupted(err)
		}
		return content, nil
	}
	content, err := io.ReadAll(io.LimitReader(r.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return nil, r.Interrupted(err)
	case len(content) > maxAnswerBytes:
		failure := api.Errorf(api.CodePayloadTooLarge, "the answer is larger than %d bytes; read it with Stream",
			maxAnswerBytes)
		failure.Started = true
		return nil, failure
	}
	return content, nil
}

// ReadJSON reads the whole body into out, unless out is nil, and closes the reply. Anything but JSON is
// CodeUnavailable: the answer does not come from a gateway.
func (r *Reply) ReadJSON(out any) error {
	content, err := r.ReadAll()
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(content, out); err != nil {
		return api.Errorf(api.CodeUnavailable, "%s %s: the answer is not from a Tempool gateway: %w", r.Request.Method,
			r.Request.URL.Path, err)
	}
	return nil
}
