package wire

import (
	"bytes"
	"encoding/json"
	"strings"
)

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

// answerRequest answers a request of the server.
func (d *jsonrpc) answerRequest(c *Conn, id json.RawMessage, method string, params []byte) error {
	if c.out.backlogged() > int(c.o.MaxMessage) {
		return violation("it sends requests faster than it reads the responses")
	}
	if first := id[0]; first != '"' && first != '-' && (first < '0' || first > '9') {
		return violation("a request with id %.40s: an id is a string or a number", id)
	}
	var msg bytes.Buffer
	msg.WriteString(`{"jsonrpc":"2.0","id":`)
	if err := json.Compact(&msg, id); err != nil {
		return violation("a request with id %.40s", id)
	}
	if result, known := defaultAnswer(method, params); known {
		msg.WriteString(`,"result":` + result + `}`)
	} else {
		failure, err := json.Marshal(map[string]any{"code": codeMethodNotFound, "message": "this client does not support " +
			method})
		if err != nil {
			return err
		}
		msg.WriteString(`,"error":` + string(failure) + `}`)
	}
	c.out.send(d.framing.wrap(nil, msg.Bytes()), nil) // if this fails, the Conn ends
	return nil
}
