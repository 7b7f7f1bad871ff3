package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// FrameType is the type of a frame; docs/protocol.md describes each.
type FrameType uint8

// The frame types of protocol 1.
const (
	FrameHello      FrameType = 1  // both directions, first: version and limits
	FrameRequest    FrameType = 2  // to the worker: a call
	FrameNotify     FrameType = 3  // to the worker: a call without a response; to the host: UnhealthyMethod
	FrameChunk      FrameType = 4  // to the host: part of a streamed response
	FrameResponse   FrameType = 6  // to the host: the call's result
	FrameError      FrameType = 7  // to the host: the failure of a call or a ping
	FrameCancel     FrameType = 8  // to the worker: respond to this call soon, its result is not needed
	FramePing       FrameType = 9  // to the worker
	FramePong       FrameType = 10 // to the host
	FrameHostCall   FrameType = 11 // to the host: a host call
	FrameHostResult FrameType = 12 // to the worker: its result
	FrameHostError  FrameType = 13 // to the worker: its failure
)

// frameRules says which types have an id and a method; the others must have none. The payload of control types may have
// MaxControl bytes even if MaxMessage is smaller.
var frameRules = [...]struct{ id, method, control bool }{
	FrameHello:      {control: true},
	FrameRequest:    {id: true, method: true},
	FrameNotify:     {method: true},
	FrameChunk:      {id: true},
	FrameResponse:   {id: true},
	FrameError:      {id: true, control: true},
	FrameCancel:     {id: true},
	FramePing:       {id: true},
	FramePong:       {id: true},
	FrameHostCall:   {id: true, method: true},
	FrameHostResult: {id: true},
	FrameHostError:  {id: true, control: true},
}

// ProtocolVersion is the version of the frames protocol that this package speaks.
const ProtocolVersion = 1

const (
	frameHeadSize = 16 // bytes before a frame's method
	lengthCounted = 12 // of these, the bytes counted by the length field
)

// Frame is a decoded frame. Its slices alias the decoded bytes.
type Frame struct {
	Type    FrameType
	ID      uint32
	Method  string
	Headers map[string]string
	Payload []byte
}

// AppendFrame appends f's encoding to dst, or returns an error and dst unchanged.
func AppendFrame(dst []byte, f Frame) ([]byte, error) {
	out, err := appendHead(dst, f, Trace{}, -1)
	if err != nil {
		return dst, err
	}
	return append(out, f.Payload...), nil
}

// timeoutHeader is the time left for a call when it is sent, in milliseconds.
const timeoutHeader = "tempool-timeout"

// appendHead appends f up to its payload. t replaces the trace in f's headers unless it is zero; timeout, in ms,
// becomes a header unless it is negative.
func appendHead(dst []byte, f Frame, t Trace, timeout int64) ([]byte, error) {
	if len(f.Method) > MaxMethod {
		return dst, ErrInvalidMethod
	}
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, byte(f.Type), 0, byte(len(f.Method)>>8), byte(len(f.Method)),
		byte(f.ID>>24), byte(f.ID>>16), byte(f.ID>>8), byte(f.ID), 0, 0, 0, 0)
	dst = append(dst, f.Method...)
	at := len(dst)
	for k, v := range f.Headers {
		if len(k) == 0 || len(k) > 0xffff || len(v) > 0xffff {
			return dst[:start], fmt.Errorf("header %.40q: a key has 1 to 65535 bytes, a value at most 65535", k)
		}
		if !t.replaces(k) {
			dst = appendHeader(dst, k, v)
		}
	}
	if !t.IsZero() {
		if len(t.State) > 0xffff {
			return dst[:start], fmt.Errorf("a tracestate of %d bytes: %w", len(t.State), ErrTooLarge)
		}
		dst = t.appendHeaders(dst)
	}
	if timeout >= 0 {
		var digits [20]byte
		value := strconv.AppendInt(digits[:0], timeout, 10)
		dst = append(dst, 0, byte(len(timeoutHeader)), 0, byte(len(value)))
		dst = append(append(dst, timeoutHeader...), value...)
	}
	h := len(dst) - at
	if h > MaxHeaders {
		return dst[:start], fmt.Errorf("headers of %d bytes: %w", h, ErrTooLarge)
	}
	binary.BigEndian.PutUint32(dst[start+12:], uint32(h))
	binary.BigEndian.PutUint32(dst[start:], uint32(lengthCounted+len(f.Method)+h+len(f.Payload)))
	return dst, nil
}

// head is the fixed part of a frame.
type head struct {
	kind    FrameType
	method  int // bytes
	headers int // bytes
	id      uint32
	length  int // bytes of the whole frame, the length field included
}

func (h head) payload() int { return h.length - frameHeadSize - h.method - h.headers }

// parseHead parses the fixed part from b, which has at least frameHeadSize bytes, and checks every length against its
// limit.
func parseHead(b []byte, maxPayload int64) (head, error) {
	n := int64(binary.BigEndian.Uint32(b))
	h := head{
		kind:    FrameType(b[4]),
		method:  int(binary.BigEndian.Uint16(b[6:])),
		id:      binary.BigEndian.Uint32(b[8:]),
		headers: int(binary.BigEndian.Uint32(b[12:])),
		length:  int(n) + 4,
	}
	switch {
	case h.kind < FrameHello || h.kind > FrameHostError:
		return h, violation("unknown frame type %d", h.kind)
	case b[5] != 0:
		return h, violation("flags %#x on a frame of type %d", b[5], h.kind)
	case (h.id != 0) != frameRules[h.kind].id:
		return h, violation("id %d on a frame of type %d", h.id, h.kind)
	case (h.method != 0) != frameRules[h.kind].method:
		return h, violation("a method of %d bytes on a frame of type %d", h.method, h.kind)
	case h.method > MaxMethod:
		return h, violation("a method of %d bytes, the limit is %d", h.method, MaxMethod)
	case h.headers > MaxHeaders:
		return h, violation("headers of %d bytes, the limit is %d", h.headers, MaxHeaders)
	case n < int64(lengthCounted+h.method+h.headers):
		return h, violation("a frame of length %d is shorter than its own parts", n)
	case int64(h.payload()) > maxPayload && (!frameRules[h.kind].control || h.payload() > MaxControl):
		return h, violation("a payload of %d bytes, the limit is %d", h.payload(), maxPayload)
	}
	return h, nil
}

// frame decodes the bytes after the fixed part.
func (h head) frame(rest []byte) (Frame, error) {
	headers, err := parseHeaders(rest[h.method : h.method+h.headers])
	if err != nil {
		return Frame{}, err
	}
	if !utf8.Valid(rest[:h.method]) {
		return Frame{}, violation("a method that is not UTF-8")
	}
	return Frame{
		Type: h.kind, ID: h.id,
		Method: string(rest[:h.method]), Headers: headers, Payload: rest[h.method+h.headers:],
	}, nil
}

// ReadFrame reads one frame. It checks the lengths of the fixed part before it allocates memory for the rest;
// maxPayload is in bytes. It returns io.EOF at the end of the stream between two frames, and a *ProtocolError for a
// frame that is malformed or cut off.
func ReadFrame(r *bufio.Reader, maxPayload int64) (Frame, error) {
	h, rest, owned, err := frameReader{r, maxPayload}.next()
	switch {
	case err == io.ErrUnexpectedEOF:
		return Frame{}, violation("a frame cut off by the end of the stream")
	case err != nil:
		return Frame{}, err
	case !owned:
		rest = bytes.Clone(rest)
	}
	return h.frame(rest)
}

// A header is encoded as the lengths of its key and value, 2 bytes each and big-endian, then key and value.

func appendHeader(dst []byte, k, v string) []byte {
	dst = append(dst, byte(len(k)>>8), byte(len(k)), byte(len(v)>>8), byte(len(v)))
	dst = append(dst, k...)
	return append(dst, v...)
}

// parseHeaders decodes a header block; nil if it is empty. It fails if a length exceeds the block, a key is empty or
// duplicate, or the text is not UTF-8.
func parseHeaders(b []byte) (map[string]string, error) {
	if len(b) == 0 {
		return nil, nil
	}
	headers := make(map[string]string)
	for len(b) > 0 {
		if len(b) < 4 {
			return nil, violation("a header cut off in its lengths")
		}
		k, v := int(binary.BigEndian.Uint16(b)), int(binary.BigEndian.Uint16(b[2:]))
		if b = b[4:]; len(b) < k+v {
			return nil, violation("a header longer than its block")
		}
		if k == 0 {
			return nil, violation("a header without a key")
		}
		if !utf8.Valid(b[:k]) || !utf8.Valid(b[k:k+v]) {
			return nil, violation("a header that is not UTF-8")
		}
		key := string(b[:k])
		if _, duplicate := headers[key]; duplicate {
			return nil, violation("duplicate header %.40q", key)
		}
		headers[key] = string(b[k : k+v])
		b = b[k+v:]
	}
	return headers, nil
}
