package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"
)

// jsonrpc is the codec of a JSON-RPC 2.0 client.
type jsonrpc struct {
	framing     framing
	framingName string
	o           Options
}

// NewJSONRPC starts a Conn that reads messages from r, a worker's stdout, and writes to w, its stdin. The Conn owns and
// closes both; r.Close must unblock a Read. framing is one of the Framing constants.
//
// An LSP server or Erlang port gets $/cancelRequest for a cancelled call; an MCP server (line) gets
// notifications/cancelled if it has not responded after half of Options.CancelGrace, since few MCP servers respond to a
// call after that. Either way the call stays in flight until the server responds to it, and the Conn breaks if that
// takes longer than Options.CancelGrace: nothing else, such as the response to a ping, shows that the server has
// stopped working on the call. Options.MCP has it otherwise.
//
// Output that the program prints between messages goes to Options.OnOutput if the framing can distinguish the two: line
// and content-length.
//
// The host answers the server's own requests that nobody has taken (Receive): ping and those in defaultAnswers
// (jsonrpc_read.go); all others fail with "method not found".
func NewJSONRPC(r io.Reader, w io.WriteCloser, framing string, o Options) (*Conn, error) {
	return ResumeJSONRPC(r, w, framing, State{}, o)
}

func (d *jsonrpc) encode(dst []byte, id uint32, r Request, _ int64) (head, body []byte, err error) {
	if len(r.Method) == 0 || len(r.Method) > MaxMethod {
		return dst, nil, ErrInvalidMethod
	}
	if int64(len(r.Payload)) > d.o.MaxMessage {
		return dst, nil, ErrTooLarge
	}
	params, err := paramsOf(r.Payload)
	if err != nil {
		return dst, nil, err
	}
	params = withTrace(params, r, d.framingName == FramingLine)
	var digits [10]byte
	number := digits[:0]
	if id != 0 {
		number = strconv.AppendUint(number, uint64(id), 10)
	}
	return d.framing.wrap(dst, message(number, r.Method, params)), nil, nil
}

// message encodes a request, or a notification if id is empty; id and params are JSON in one line.
func message(id []byte, method string, params []byte) []byte {
	msg := make([]byte, 0, 64+len(method)+len(params))
	msg = append(msg, `{"jsonrpc":"2.0",`...)
	if len(id) > 0 {
		msg = append(append(append(msg, `"id":`...), id...), ',')
	}
	msg = append(append(msg, `"method":`...), quoted(method)...)
	if len(params) > 0 {
		msg = append(append(msg, `,"params":`...), params...)
	}
	return append(msg, '}')
}

// paramsOf checks that payload is valid as params and puts it on one line; nil if it is empty or null.
func paramsOf(payload []byte) ([]byte, error) {
	payload = bytes.TrimSpace(payload)
	if len(payload) == 0 || string(payload) == "null" {
		return nil, nil
	}
	if payload[0] != '{' && payload[0] != '[' || !json.Valid(payload) {
		return nil, ErrInvalidParams
	}
	if bytes.ContainsAny(payload, "\r\n") {
		var line bytes.Buffer
		if err := json.Compact(&line, payload); err != nil {
			return nil, ErrInvalidParams
		}
		return line.Bytes(), nil
	}
	return payload, nil
}

// cancel notifies an MCP server late, unless Options.MCP says that no response ends the call, too: it may not respond
// to a call that it knows to be cancelled.
func (d *jsonrpc) cancel(id uint32, method string) (now, late []byte) {
	number := strconv.FormatUint(uint64(id), 10)
	switch {
	case d.framingName != FramingLine:
		return d.framing.wrap(nil, message(nil, "$/cancelRequest", []byte(`{"id":`+number+`}`))), nil
	case method == "initialize":
		return nil, nil // MCP forbids to cancel it; without a response the Conn ends
	}
	cancelled := d.cancelled(number)
	if d.o.MCP {
		return cancelled, nil
	}
	return nil, cancelled
}

// cancelled is the message that cancels a request of an MCP server.
func (d *jsonrpc) cancelled(id string) []byte {
	params := []byte(`{"requestId":` + id + `,"reason":"the caller has stopped waiting"}`)
	return d.framing.wrap(nil, message(nil, "notifications/cancelled", d.withMeta(params)))
}

func (d *jsonrpc) appendPing(dst []byte, id uint32) []byte {
	var params []byte
	if d.o.MCPMeta != nil {
		params = d.withMeta([]byte("{}"))
	}
	return d.framing.wrap(dst, message(strconv.AppendUint(nil, uint64(id), 10), d.o.PingMethod, params))
}

// withMeta adds Options.MCPMeta to params, an object without it.
func (d *jsonrpc) withMeta(params []byte) []byte {
	if d.o.MCPMeta == nil {
		return params
	}
	comma := ","
	if params[1] == '}' {
		comma = ""
	}
	return slices.Concat([]byte(`{"_meta":`), d.o.MCPMeta, []byte(comma), params[1:])
}

// Listen asks an MCP server for notifications, beside the calls in flight, until stop is called. It does not block. All
// of them have Listener(n) as their subscription's id; so must no other Listen of the Conn. What the server answers at
// the end is dropped.
func Listen(c *Conn, n int64, method string, params []byte) (stop func()) {
	d, ok := c.codec.(*jsonrpc)
	if !ok {
		return func() {}
	}
	id := Listener(n)
	c.out.send(d.framing.wrap(nil, message([]byte(id), method, params)), nil) // if this fails, the Conn ends
	return func() { c.out.send(d.cancelled(id), nil) }
}

// Listener is the id of the request of Listen, as JSON: a string, unlike those of calls.
func Listener(n int64) string { return listenerPrefix + strconv.FormatInt(n, 10) + `"` }

const listenerPrefix = `"listen-`

// withTrace adds the trace context of r to _meta of params, as MCP servers expect it; paramsOf has checked params. A
// context that params has already stays. Of a request without params only an MCP server gets some: others may reject
// them.
func withTrace(params []byte, r Request, mcp bool) []byte {
	parent, state := r.trace()
	if parent == "" || len(params) == 0 && !mcp || len(params) > 0 && params[0] != '{' {
		return params
	}
	if len(params) == 0 {
		return metaMember(parent, state, []byte(`}`))
	}
	if !bytes.Contains(params, []byte(`"_meta"`)) && !bytes.Contains(params, []byte(`\u`)) { // an escape may spell it, too
		return metaMember(parent, state, params[1:])
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(params, &members) != nil {
		return params
	}
	given, has := members["_meta"]
	if !has {
		return metaMember(parent, state, params[1:])
	}
	var meta map[string]json.RawMessage
	if json.Unmarshal(given, &meta) != nil || meta == nil || meta[traceparentHeader] != nil {
		return params
	}
	meta[traceparentHeader] = quoted(parent)
	if state != "" {
		meta[tracestateHeader] = quoted(state)
	}
	members["_meta"], _ = json.Marshal(meta) // what was valid before does not fail
	merged, _ := json.Marshal(members)
	return merged
}

// metaMember returns an object of _meta, which has the trace context alone, and what follows the opening brace in rest.
func metaMember(parent, state string, rest []byte) []byte {
	out := append(make([]byte, 0, 64+len(parent)+len(state)+len(rest)), `{"_meta":{"`+traceparentHeader+`":`...)
	out = append(out, quoted(parent)...)
	if state != "" {
		out = append(append(out, `,"`+tracestateHeader+`":`...), quoted(state)...)
	}
	out = append(out, '}')
	if trimmed := bytes.TrimLeft(rest, " \t"); trimmed[0] != '}' {
		out = append(out, ',')
	}
	return append(out, rest...)
}

func quoted(text string) []byte {
	out, _ := json.Marshal(text) // a string never fails
	return out
}
