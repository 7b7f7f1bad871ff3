package wire

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const traceText = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"

var someTrace = Trace{
	ID:   [16]byte{0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c},
	Span: [8]byte{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31},
}

// sentHeaders are those of a request as a worker decodes them; duplicates would be an error.
func sentHeaders(t *testing.T, r Request) map[string]string {
	t.Helper()
	head, body, err := (&frames{max: 1000}).encode(nil, 1, r, -1)
	require.NoError(t, err)
	require.Empty(t, body)
	h, err := parseHead(head, 1000)
	require.NoError(t, err)
	frame, err := h.frame(head[frameHeadSize:])
	require.NoError(t, err)
	require.Equal(t, r.Payload, frame.Payload)
	return frame.Headers
}

func TestTheTraceOfARequestReplacesThatInItsHeaders(t *testing.T) {
	require.Equal(t, traceText, someTrace.Parent())
	require.Empty(t, Trace{}.Parent())
	stated := someTrace
	stated.State = "a=1"
	given := map[string]string{"traceparent": "old", "tracestate": "old=1", "x-mine": "yes"}
	for name, c := range map[string]struct {
		request Request
		want    map[string]string
	}{
		"no trace": {Request{Headers: given}, given},
		"a trace":  {Request{Headers: given, Trace: someTrace}, map[string]string{"traceparent": traceText, "x-mine": "yes"}},
		"a trace with a state": {Request{Headers: given, Trace: stated},
			map[string]string{"traceparent": traceText, "tracestate": "a=1", "x-mine": "yes"}},
		"a trace and no headers": {Request{Trace: stated}, map[string]string{"traceparent": traceText, "tracestate": "a=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.request.Method, c.request.Payload = "m", []byte("body")
			require.Equal(t, c.want, sentHeaders(t, c.request))
			require.Equal(t, c.want, c.request.Trace.in(c.request.Headers), "a host call gets the same")
			require.Equal(t, "old", given["traceparent"], "the caller's map is unchanged")
			parent, state := c.request.trace()
			require.Equal(t, []string{c.want["traceparent"], c.want["tracestate"]}, []string{parent, state},
				"and so does JSON-RPC")
		})
	}
	stated.State = "a=" + strings.Repeat("x", 1<<16)
	_, _, err := (&frames{max: 1000}).encode(nil, 1, Request{Method: "m", Trace: stated}, -1)
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestARequestThatNamesItsTraceAllocatesNothingForIt(t *testing.T) {
	d, buffer := &frames{max: 1000}, make([]byte, 0, 1000)
	request := Request{Method: "m", Trace: someTrace, Payload: []byte("body")}
	require.Zero(t, testing.AllocsPerRun(1000, func() { _, _, _ = d.encode(buffer, 1, request, 1000) }))
}
