package wire

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// FrameType says what a frame is. docs/protocol.md describes each.
type FrameType uint8

// The frame types of protocol 1.
const (
	FrameHello      FrameType = 1  // both ways, first: who speaks, and its limits
	FrameRequest    FrameType = 2  // to the worker: a call
	FrameNotify     FrameType = 3  // to the worker: a call without an answer
	FrameChunk      FrameType = 4  // a piece of a streamed response, or of a request body after FlagMore
	FrameEnd        FrameType = 5  // to the worker: the request body is complete
	FrameResponse   FrameType = 6  // to the host: the call's answer
	FrameError      FrameType = 7  // to the host: the call's failure
	FrameCancel     FrameType = 8  // to the worker: answer this call soon, its result is not wanted any more
	FramePing       FrameType = 9  // to the worker
	FramePong       FrameType = 10 // to the host
	FrameHostCall   FrameType = 11 // to the host: a question of the worker
	FrameHostResult FrameType = 12 // to the worker: its answer
	FrameHostError  FrameType = 13 // to the worker: its failure
)

// frameRules says which types carry an id and a method; the others carry none. The payload of control types may have MaxControl bytes
// even where a message may not.
var frameRules = [...]struct{ id, method, control bool }{
	FrameHello:      {control: true},
	FrameRequest:    {id: true, method: true},
	FrameNotify:     {method: true},
	FrameChunk:      {id: true},
	FrameEnd:        {id: true},
	FrameResponse:   {id: true},
	FrameError:      {id: true, control: true},
	FrameCancel:     {id: true},
	FramePing:       {id: true},
	FramePong:       {id: true},
	FrameHostCall:   {id: true, method: true},
	FrameHostResult: {id: true},
	FrameHostError:  {id: true, control: true},
}

// FlagMore on a Request says that its body goes on in Chunk frames until End.
const FlagMore uint8 = 1

// ProtocolVersion is the version of the frames protocol that this package speaks.
const ProtocolVersion = 1

const (
	frameHeadSize = 16 // bytes before a frame's method
	lengthCounted = 12 // of these, the bytes that the length field counts
)

// Frame is one frame in decoded form. The slices alias what was decoded.
type Frame struct {
	Type    FrameType
	Flags   uint8
	ID      uint32
	Method  string
	Headers map[string]string
	Payload []byte
}

// AppendFrame appends f's encoding to dst, or returns an error and dst as it was.
func AppendFrame(dst []byte, f Frame) ([]byte, error) {
	out, err := appendHead(dst, f.Type, f.ID, f.Method, f.Headers, -1, len(f.Payload))
	if err != nil {
		return dst, err
	}
	out[len(dst)+5] = f.Flags
	return append(out, f.Payload...), nil
}

// timeoutHeader carries the milliseconds that a call has left when it is sent.
const timeoutHeader = "tempool-timeout"

// appendHead appends everything of a frame but its payload of n bytes. timeout, in ms, becomes a header unless it is negative.
func appendHead(dst []byte, t FrameType, id uint32, method string, headers map[string]string, timeout int64, n int) ([]byte, error) {
	if len(method) > MaxMethod {
		return dst, ErrInvalidMethod
	}
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, byte(t), 0, byte(len(method)>>8), byte(len(method)),
		byte(id>>24), byte(id>>16), byte(id>>8), byte(id), 0, 0, 0, 0)
	dst = append(dst, method...)
	at := len(dst)
	for k, v := range headers {
		if len(k) == 0 || len(k) > 0xffff || len(v) > 0xffff {
			return dst[:start], fmt.Errorf("header %.40q: a key has 1 to 65535 bytes, a value at most 65535", k)
		}
		dst = appendHeader(dst, k, v)
	}
	if timeout >= 0 {
		dst = append(dst, 0, byte(len(timeoutHeader)), 0, 0)
		dst = append(dst, timeoutHeader...)
		value := len(dst)
		dst = appendInt(dst, timeout)
		binary.BigEndian.PutUint16(dst[value-len(timeoutHeader)-2:], uint16(len(dst)-value))
	}
	h := len(dst) - at
	if h > MaxHeaders {
		return dst[:start], fmt.Errorf("headers of %d bytes: %w", h, ErrTooLarge)
	}
	binary.BigEndian.PutUint32(dst[start+12:], uint32(h))
	binary.BigEndian.PutUint32(dst[start:], uint32(lengthCounted+len(method)+h+n))
	return dst, nil
}

// head is the fixed part of a frame.
type head struct {
	kind    FrameType
	flags   uint8
	method  int // bytes
	headers int // bytes
	id      uint32
	length  int // bytes of the whole frame, the length field included
}

func (h head) payload() int { return h.length - frameHeadSize - h.method - h.headers }

// parseHead reads the fixed part from b, which holds at least frameHeadSize bytes, and checks every length against its limit.
func parseHead(b []byte, maxPayload int64) (head, error) {
	n := int64(binary.BigEndian.Uint32(b))
	h := head{
		kind:    FrameType(b[4]),
		flags:   b[5],
		method:  int(binary.BigEndian.Uint16(b[6:])),
		id:      binary.BigEndian.Uint32(b[8:]),
		headers: int(binary.BigEndian.Uint32(b[12:])),
		length:  int(n) + 4,
	}
	switch {
	case h.kind < FrameHello || h.kind > FrameHostError:
		return h, violation("unknown frame type %d", h.kind)
	case h.flags != 0 && (h.flags != FlagMore || h.kind != FrameRequest):
		return h, violation("flags %#x on a frame of type %d", h.flags, h.kind)
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

// DecodeFrame decodes the first frame of b, which must hold all of it, and returns how many bytes it took. maxPayload is in bytes.
func DecodeFrame(b []byte, maxPayload int64) (Frame, int, error) {
	if len(b) < frameHeadSize {
		return Frame{}, 0, violation("a frame cut off after %d bytes", len(b))
	}
	h, err := parseHead(b, maxPayload)
	if err != nil {
		return Frame{}, 0, err
	}
	if len(b) < h.length {
		return Frame{}, 0, violation("a frame cut off after %d of %d bytes", len(b), h.length)
	}
	f, err := h.frame(b[frameHeadSize:h.length])
	return f, h.length, err
}

// frame decodes what follows the fixed part.
func (h head) frame(rest []byte) (Frame, error) {
	headers, err := parseHeaders(rest[h.method : h.method+h.headers])
	if err != nil {
		return Frame{}, err
	}
	if !utf8.Valid(rest[:h.method]) {
		return Frame{}, violation("a method that is not UTF-8")
	}
	return Frame{
		Type: h.kind, Flags: h.flags, ID: h.id,
		Method: string(rest[:h.method]), Headers: headers, Payload: rest[h.method+h.headers:],
	}, nil
}
