package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
)

// rpcMessage is any message of a server; its members determine its kind.
type rpcMessage struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  *string         `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

type rpcError struct {
	Code    json.Number     `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func (d *jsonrpc) read(c *Conn) error {
	for {
		raw, err := d.framing.next()
		if err != nil {
			return err
		}
		if err := d.receive(c, raw); err != nil {
			return err
		}
	}
}

func (d *jsonrpc) receive(c *Conn, raw []byte) error {
	var m rpcMessage
	if err := json.Unmarshal(raw, &m); err != nil || len(bytes.TrimSpace(raw)) == 0 || bytes.TrimSpace(raw)[0] != '{' {
		if d.o.MCP {
			d.o.output(raw)
			return nil
		}
		return violation("%.80q is not a JSON-RPC message; print to stderr, since stdout is for the protocol", raw)
	}
	if m.Version == "" && m.Method == nil && m.ID == nil && d.framingName == FramingLine {
		d.o.output(raw) // such as a structured log line
		return nil
	}
	if m.Version != "2.0" {
		return violation("a message of JSON-RPC version %.20q instead of 2.0", m.Version)
	}
	switch {
	case m.Method != nil && (m.ID == nil || string(m.ID) == "null"):
		c.receive(Incoming{Method: *m.Method, Params: m.Params, conn: c}) // some servers send it with the id null
		return nil
	case m.Method != nil:
		return d.receiveRequest(c, m.ID, *m.Method, m.Params)
	case m.ID == nil:
		return violation("a message with neither method nor id")
	}
	return d.receiveResponse(c, m)
}

// Incoming is a message of a JSON-RPC server that answers no call.
type Incoming struct {
	Method string
	Params json.RawMessage // nil for none
	ID     json.RawMessage // of a request; nil for a notification
	conn   *Conn
}

// Answer answers a request with its result or its error, which are JSON in one line. A Conn that has ended drops it.
func (m Incoming) Answer(result, failure json.RawMessage) {
	member, value := `,"result":`, result
	if failure != nil {
		member, value = `,"error":`, failure
	}
	if d, ok := m.conn.codec.(*jsonrpc); ok {
		m.conn.out.send(d.framing.wrap(nil, slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), m.ID, []byte(member), value,
			[]byte{'}'})), nil)
	}
}

// Receive has f receive the messages that answer no call, on the reading goroutine: it must not block. f reports
// whether it takes a request, which it must answer then.
func Receive(c *Conn, f func(Incoming) bool) { c.receiver.Store(&f) }

func (c *Conn) receive(m Incoming) bool {
	f := c.receiver.Load()
	return f != nil && (*f)(m)
}

// receiveResponse matches a response with its request.
func (d *jsonrpc) receiveResponse(c *Conn, m rpcMessage) error {
	var failure *RemoteError
	if m.Error != nil && string(m.Error) != "null" {
		var e rpcError
		if err := json.Unmarshal(m.Error, &e); err != nil {
			return violation("an invalid error: %v", err)
		}
		failure = &RemoteError{Code: e.Code.String(), Message: e.Message, Data: e.Data,
			Unhandled: e.Code.String() == codeInternalError}
	} else if m.Result == nil {
		return violation("a response with neither result nor error")
	}
	if d.o.MCP && bytes.HasPrefix(m.ID, []byte(listenerPrefix)) {
		return nil
	}
	id, err := strconv.ParseUint(string(m.ID), 10, 32)
	if err != nil || id == 0 || id > math.MaxInt32 {
		if failure != nil {
			return violation("an error for no request (id %.40s): %s", m.ID, failure.Message)
		}
		return violation("unsolicited: a response with id %.40s", m.ID)
	}
	known := false
	switch {
	case id >= firstPingID:
		known = c.receivePong(uint32(id), nil) // an error such as "method not found" is a pong, too
	case failure != nil:
		known = c.complete(uint32(id), Response{}, failure)
	default:
		known = c.complete(uint32(id), Response{Payload: m.Result}, nil)
	}
	if !known && !d.o.MCP {
		return violation("unsolicited: a response with id %d, which is not in flight", id)
	}
	return nil
}

const (
	codeMethodNotFound = -32601   // JSON-RPC's "method not found"
	codeInternalError  = "-32603" // JSON-RPC's "internal error": servers answer with it when a handler throws
)

// defaultAnswers are the results of requests that a server may make of a client without an editor or a user. Without
// them a language server would stop or never become ready.
var defaultAnswers = map[string]string{
	"ping":                           `{}`, // MCP
	"client/registerCapability":      `null`,
	"client/unregisterCapability":    `null`,
	"window/workDoneProgress/create": `null`,
	"window/showMessageRequest":      `null`,
	"window/showDocument":            `{"success":false}`,
	"workspace/workspaceFolders":     `null`,
	"workspace/applyEdit":            `{"applied":false,"failureReason":"this client holds no documents"}`,
}

// defaultAnswer returns the result for a server's request; false for an unknown method.
func defaultAnswer(method string, params []byte) (string, bool) {
	if result, known := defaultAnswers[method]; known {
		return result, true
	}
	if strings.HasPrefix(method, "workspace/") && strings.HasSuffix(method, "/refresh") {
		return `null`, true
	}
	if method == "workspace/configuration" {
		var request struct{ Items []json.RawMessage }
		if json.Unmarshal(params, &request) != nil {
			return `[]`, true
		}
		// One null per item: the server then uses its default.
		return "[" + strings.TrimSuffix(strings.Repeat("null,", len(request.Items)), ",") + "]", true
	}
	return "", false
}

// receiveRequest passes a request of the server on, or answers it.
func (d *jsonrpc) receiveRequest(c *Conn, id json.RawMessage, method string, params []byte) error {
	if c.out.backlogged() > int(c.o.MaxMessage) {
		return violation("it sends requests faster than it reads the responses")
	}
	if first := id[0]; first != '"' && first != '-' && (first < '0' || first > '9') {
		return violation("a request with id %.40s: an id is a string or a number", id)
	}
	if c.receive(Incoming{Method: method, Params: params, ID: id, conn: c}) {
		return nil
	}
	if result, known := defaultAnswer(method, params); known {
		Incoming{ID: id, conn: c}.Answer(json.RawMessage(result), nil)
		return nil
	}
	failure, err := json.Marshal(map[string]any{"code": codeMethodNotFound, "message": "this client does not support " +
		method})
	if err == nil {
		Incoming{ID: id, conn: c}.Answer(nil, failure)
	}
	return err
}
