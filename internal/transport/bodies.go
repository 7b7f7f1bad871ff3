package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/tempool/tempool/api"
)

// Body is the body of a request: nothing, bytes that can be sent again, or a reader that cannot once something was read
// from it. The zero value means no body.
type Body struct {
	contentType string // "" sends none
	bytes       []byte
	reader      *trackedReader
	err         error // see Err
}

// Err is why the body, and so its request, cannot be sent: CodeInvalid for a value that JSON cannot express.
func (b Body) Err() error { return b.err }

// trackedReader records whether anything read from it.
type trackedReader struct {
	io.Reader
	used atomic.Bool
}

func (r *trackedReader) Read(p []byte) (int, error) {
	r.used.Store(true)
	return r.Reader.Read(p)
}

// RawBody sends bytes as they are.
func RawBody(content []byte) Body { return Body{bytes: content} }

// JSONBody sends a value as JSON; nil means no body.
func JSONBody(value any) Body {
	if value == nil {
		return Body{}
	}
	content, err := json.Marshal(value)
	if err != nil {
		return Body{err: api.Errorf(api.CodeInvalid, "cannot encode the parameters as JSON: %w", err)}
	}
	return Body{contentType: "application/json", bytes: content}
}

// AnyBody sends a []byte or an io.Reader as it is, and everything else as JSON.
func AnyBody(value any) Body {
	switch value := value.(type) {
	case []byte:
		return RawBody(value)
	case io.Reader:
		return Body{reader: &trackedReader{Reader: value}}
	}
	return JSONBody(value)
}

// Consumed reports whether the body cannot be sent again.
func (b Body) Consumed() bool { return b.reader != nil && b.reader.used.Load() }

func (b Body) open() io.Reader {
	switch {
	case b.reader != nil:
		return io.NopCloser(b.reader)
	case len(b.bytes) == 0:
		return nil
	}
	return bytes.NewReader(b.bytes)
}

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
