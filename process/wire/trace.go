package wire

import (
	"encoding/hex"
	"maps"
)

// Names of the headers of the W3C trace context.
const (
	traceparentHeader = "traceparent"
	tracestateHeader  = "tracestate"
)

// parentLength is that of a traceparent, in bytes.
const parentLength = len("00-") + 2*16 + len("-") + 2*8 + len("-") + 2

// Trace is a W3C trace context: the span that the worker's spans are below. The zero value is none. It becomes text
// where the request is encoded, so that the many calls which are not sampled, and name their trace nevertheless,
// allocate nothing for it.
type Trace struct {
	ID    [16]byte
	Span  [8]byte
	Flags byte
	State string // the tracestate, at most 65,535 bytes; "" for none
}

// IsZero reports whether t names no trace.
func (t Trace) IsZero() bool { return t.ID == [16]byte{} }

// Parent is the traceparent; "" for none.
func (t Trace) Parent() string {
	if t.IsZero() {
		return ""
	}
	return string(t.appendParent(make([]byte, 0, parentLength)))
}

func (t Trace) appendParent(dst []byte) []byte {
	dst = append(dst, "00-"...)
	dst = append(hex.AppendEncode(dst, t.ID[:]), '-')
	dst = append(hex.AppendEncode(dst, t.Span[:]), '-')
	return hex.AppendEncode(dst, []byte{t.Flags})
}

// appendHeaders appends t as headers of a frame.
func (t Trace) appendHeaders(dst []byte) []byte {
	dst = append(dst, 0, byte(len(traceparentHeader)), 0, byte(parentLength))
	dst = t.appendParent(append(dst, traceparentHeader...))
	if t.State != "" {
		dst = appendHeader(dst, tracestateHeader, t.State)
	}
	return dst
}

// replaces reports whether t takes the place of a header.
func (t Trace) replaces(key string) bool {
	return !t.IsZero() && (key == traceparentHeader || key == tracestateHeader)
}

// in returns a copy of headers with t in place of the trace that they name.
func (t Trace) in(headers map[string]string) map[string]string {
	out := maps.Clone(headers)
	if t.IsZero() {
		return out
	}
	if out == nil {
		out = make(map[string]string, 2)
	}
	out[traceparentHeader] = t.Parent()
	delete(out, tracestateHeader)
	if t.State != "" {
		out[tracestateHeader] = t.State
	}
	return out
}

// trace returns the traceparent and the tracestate of the request; "" for none.
func (r Request) trace() (parent, state string) {
	if r.Trace.IsZero() {
		return r.Headers[traceparentHeader], r.Headers[tracestateHeader]
	}
	return r.Trace.Parent(), r.Trace.State
}
