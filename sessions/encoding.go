package sessions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// Header is what a store saves beside a session's body: times in milliseconds since 1970, the TTL in milliseconds.
type Header struct{ Version, CreatedAt, LastAccessed, TTL int64 }

// Header returns the session's header.
func (s *Session) Header() Header {
	return Header{s.Version, s.CreatedAt.UnixMilli(), s.LastAccessed.UnixMilli(), s.TTL.D().Milliseconds()}
}

// Session makes a session of its id and header. Its maps are nil until SetBody.
func (h Header) Session(id string) *Session {
	return &Session{
		ID: id, Version: h.Version, CreatedAt: time.UnixMilli(h.CreatedAt).UTC(),
		LastAccessed: time.UnixMilli(h.LastAccessed).UTC(),
		TTL:          spec.Duration(time.Duration(h.TTL) * time.Millisecond),
	}
}

// body is the part of a session that clients write.
type body struct {
	Programs map[string]json.RawMessage `json:"programs"`
	Data     map[string]json.RawMessage `json:"data"`
	Metadata map[string]json.RawMessage `json:"metadata"`
}

// Body encodes programs, data and metadata as one JSON document, the form in which stores save them. It fails with
// CodePayloadTooLarge above MaxBody and with CodeInvalid if a value is not JSON in UTF-8.
func (s *Session) Body() ([]byte, error) {
	encoded, err := encode(body{orEmpty(s.Programs), orEmpty(s.Data), orEmpty(s.Metadata)})
	switch {
	case err != nil:
		return nil, api.Errorf(api.CodeInvalid, "session %s: a value is not valid JSON: %w", s.ID, err)
	case !utf8.Valid(encoded):
		return nil, api.Errorf(api.CodeInvalid, "session %s: a value is not valid UTF-8", s.ID)
	case len(encoded) > MaxBody:
		return nil, api.Errorf(api.CodePayloadTooLarge,
			"session %s has %d bytes, the limit is %d: store large values elsewhere and save references", s.ID, len(encoded),
			MaxBody)
	}
	return encoded, nil
}

// SetBody is the inverse of Body.
func (s *Session) SetBody(encoded []byte) error {
	var b body
	if err := json.Unmarshal(encoded, &b); err != nil {
		return fmt.Errorf("decode session %s: %w", s.ID, err)
	}
	s.Programs, s.Data, s.Metadata = orEmpty(b.Programs), orEmpty(b.Data), orEmpty(b.Metadata)
	return nil
}

func orEmpty(m map[string]json.RawMessage) map[string]json.RawMessage {
	if m == nil {
		return map[string]json.RawMessage{}
	}
	return m
}

// encode is json.Marshal without HTML escapes, which would turn "<" into six bytes.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

var errTrailing = errors.New("unexpected data after the JSON value")

// decodeOne reads one JSON value and fails if more follows.
func decodeOne(d *json.Decoder, into any) error {
	if err := d.Decode(into); err != nil {
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errTrailing
	}
	return nil
}
