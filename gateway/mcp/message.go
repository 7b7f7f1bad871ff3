package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// Codes of JSON-RPC errors.
const (
	codeParse      = -32700
	codeRequest    = -32600
	codeMethod     = -32601
	codeInternal   = -32603
	codeSession    = -32001 // the session is unknown, or has ended
	codeParams     = -32602
	codeHeader     = -32020 // a header does not say what the body does
	codeCapability = -32021 // the client lacks a capability
	codeVersion    = -32022 // the revision of MCP is not supported
)

// versions are the revisions of MCP with initialize that clients may speak, in rising order.
var versions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

// resumableVersion is the first revision whose clients take an event without data.
const resumableVersion = "2025-11-25"

// message is a message of JSON-RPC. Params, results and errors stay bytes.
type message struct {
	ID     json.RawMessage // nil for a notification
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
}

// failure is an error of JSON-RPC, and the HTTP status of an answer without any other content.
type failure struct {
	status  int
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (f *failure) Error() string { return f.Message }

// parse reads the one message of a body.
func parse(body []byte) (m message, err error) {
	body = bytes.TrimSpace(body)
	if len(body) > 0 && body[0] == '[' && json.Valid(body) {
		return m, &failure{http.StatusBadRequest, codeRequest, "MCP has no batches; send one message for each request", nil}
	}
	if !json.Valid(body) {
		err := json.Unmarshal(body, &m)
		return m, &failure{http.StatusBadRequest, codeParse, fmt.Sprintf("the body is not a JSON-RPC message: %v", err), nil}
	}
	var version, method json.RawMessage
	for name, value := range members(body) {
		switch name {
		case "jsonrpc":
			version = value
		case "id":
			m.ID = value
		case "method":
			method = value
		case "params":
			m.Params = value
		case "result":
			m.Result = value
		case "error":
			m.Error = value
		}
	}
	if string(m.Error) == "null" { // beside a result
		m.Error = nil
	}
	response := m.Result != nil || m.Error != nil
	if method != nil && (json.Unmarshal(method, &m.Method) != nil || string(method) == "null") {
		version = nil
	}
	if string(version) != `"2.0"` || response == (m.Method != "") || response && m.ID == nil || m.ID != nil && !isID(m.ID) {
		return m, &failure{http.StatusBadRequest, codeRequest,
			"the body is neither a request, a notification nor a response of JSON-RPC 2.0", nil}
	}
	for _, part := range []*json.RawMessage{&m.Params, &m.Result, &m.Error} {
		*part = inOneLine(*part)
	}
	return m, nil
}

// isID reports whether the JSON is a string or a number.
func isID(id json.RawMessage) bool {
	return id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9'
}

// inOneLine is valid JSON without line ends, which end a message on a pipe and in a stream of events.
func inOneLine(text json.RawMessage) json.RawMessage {
	if !bytes.ContainsAny(text, "\r\n") {
		return text
	}
	var line bytes.Buffer
	_ = json.Compact(&line, text) // it is valid
	return line.Bytes()
}

// request encodes a request, or a notification if id is nil. params may be empty.
func request(id json.RawMessage, method string, params json.RawMessage) []byte {
	name, _ := json.Marshal(method) // a string never fails
	out := []byte(`{"jsonrpc":"2.0",`)
	if id != nil {
		out = slices.Concat(out, []byte(`"id":`), id, []byte{','})
	}
	out = slices.Concat(out, []byte(`"method":`), name)
	if len(params) > 0 {
		out = slices.Concat(out, []byte(`,"params":`), inOneLine(params))
	}
	return append(out, '}')
}

// response encodes the answer to a request: the result, or the error if err is not nil.
func response(id, result json.RawMessage, err error) []byte {
	member := []byte(`,"result":`)
	if err != nil {
		member = []byte(`,"error":`)
		result, _ = json.Marshal(failureOf(err)) // its parts are valid
	}
	return slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), id, member, inOneLine(result), []byte{'}'})
}

// failureOf is an error as JSON-RPC has it: a server's own, else codeInternal with what Tempool knows about it.
func failureOf(err error) *failure {
	f := &failure{Code: codeInternal, Message: api.MessageOf(err)}
	if own, ok := errors.AsType[*failure](err); ok {
		f = own
	} else if remote, ok := errors.AsType[*wire.RemoteError](err); ok {
		f.Message, f.Data = remote.Message, remote.Data
		f.Code, _ = strconv.Atoi(remote.Code)
	} else if coded, ok := errors.AsType[*api.Error](err); ok {
		f.Data, _ = json.Marshal(map[string]any{"code": coded.Code, "started": coded.Started,
			"retry_after_ms": coded.RetryAfter.Milliseconds()})
	}
	return f
}

// member returns a member of an object, nil if it has none.
func member(object json.RawMessage, name string) (found json.RawMessage) {
	for n, value := range members(object) {
		if n == name {
			found = value
		}
	}
	return found
}

// members are those of an object in valid JSON, in order; none if it is no object. Their values are parts of it.
func members(object json.RawMessage) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		at := skipSpace(object, 0)
		if at == len(object) || object[at] != '{' {
			return
		}
		for {
			at = skipSpace(object, at+1) // after the brace or a comma
			if at >= len(object) || object[at] != '"' {
				return
			}
			end := skipValue(object, at)
			if end < at+2 {
				return
			}
			name := string(object[at+1 : end-1])
			if strings.ContainsRune(name, '\\') {
				_ = json.Unmarshal(object[at:end], &name)
			}
			at = skipSpace(object, skipSpace(object, end)+1) // after the colon
			end = skipValue(object, min(at, len(object)))
			if at > end || !yield(name, object[at:end]) {
				return
			}
			at = skipSpace(object, end)
		}
	}
}

func skipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r') {
		at++
	}
	return at
}

// skipValue returns the end of the JSON value that begins at at.
func skipValue(text []byte, at int) int {
	depth := 0
scan:
	for at < len(text) {
		switch c := text[at]; c {
		case '"':
			for at++; at < len(text) && text[at] != '"'; at++ {
				if text[at] == '\\' {
					at++
				}
			}
		case '{', '[':
			depth++
		case '}', ']', ',', ' ', '\n', '\t', '\r', ':':
			if depth == 0 { // of a number or a literal
				break scan
			}
			if c == '}' || c == ']' {
				depth--
			}
		default:
			at++
			continue
		}
		if at++; depth == 0 {
			break
		}
	}
	return min(at, len(text))
}

// withMember returns the object with a member in place of the one that it has; without it for nil.
func withMember(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	members := map[string]json.RawMessage{}
	if json.Unmarshal(object, &members) != nil || members == nil {
		return object
	}
	if members[name] = value; value == nil {
		delete(members, name)
	}
	out, err := json.Marshal(members)
	if err != nil {
		return object
	}
	return out
}

// sharedResult is the server's answer to initialize as clients without a process of their own get it: with their
// version, if the server has it, and without what needs such a process.
func sharedResult(greeting, params json.RawMessage, mode string) json.RawMessage {
	var asked, offered struct{ ProtocolVersion string }
	_ = json.Unmarshal(params, &asked)
	_ = json.Unmarshal(greeting, &offered)
	if slices.Contains(versions, asked.ProtocolVersion) && asked.ProtocolVersion <= offered.ProtocolVersion {
		version, _ := json.Marshal(asked.ProtocolVersion)
		greeting = withMember(greeting, "protocolVersion", version)
	}
	capabilities := withMember(withMember(member(greeting, "capabilities"), "logging", nil), "tasks", nil)
	if resources := member(capabilities, "resources"); resources != nil && mode != spec.MCPShared {
		capabilities = withMember(capabilities, "resources", withMember(resources, "subscribe", nil))
	}
	return withMember(greeting, "capabilities", capabilities)
}
