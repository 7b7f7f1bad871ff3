package transport

import (
	"bytes"
	"encoding/json"
	"io"
	"sync/atomic"

	"github.com/tempool/tempool/api"
)

// Body is the body of a request: nothing, bytes that can be sent again, or a reader that cannot once something was read
// from it. The zero value means no body.
type Body struct {
	contentType string // "" sends none
	bytes       []byte
	reader      *trackedReader
}

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

// JSONBody sends a value as JSON; nil means no body. A value that JSON cannot express is CodeInvalid.
func JSONBody(value any) (Body, error) {
	if value == nil {
		return Body{}, nil
	}
	content, err := json.Marshal(value)
	if err != nil {
		return Body{}, api.Errorf(api.CodeInvalid, "cannot encode the parameters as JSON: %w", err)
	}
	return Body{contentType: "application/json", bytes: content}, nil
}

// AnyBody sends a []byte or an io.Reader as it is, and everything else as JSON.
func AnyBody(value any) (Body, error) {
	switch value := value.(type) {
	case []byte:
		return RawBody(value), nil
	case io.Reader:
		return Body{reader: &trackedReader{Reader: value}}, nil
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
