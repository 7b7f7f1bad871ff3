package wire

import (
	"bytes"
	"encoding/json"
	"strings"
)

// codeMethodNotFound is JSON-RPC's number for it.
const codeMethodNotFound = -32601

// defaultAnswers holds the questions that a server may ask its client and whose answer "nothing" is always true for a client without an
// editor or a person behind it. A language server would stop, or never become ready, without them.
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

// defaultAnswer gives the result for a server's question; false means that the method is not known here.
func defaultAnswer(method string, params []byte) (string, bool) {
	if result, known := defaultAnswers[method]; known {
		return result, true
	}
	if strings.HasPrefix(method, "workspace/") && strings.HasSuffix(method, "/refresh") {
		return `null`, true
	}
	if method == "workspace/configuration" {
		var asked struct{ Items []json.RawMessage }
		if json.Unmarshal(params, &asked) != nil {
			return `[]`, true
		}
		// One null for each item: the server then takes its default.
		return "[" + strings.TrimSuffix(strings.Repeat("null,", len(asked.Items)), ",") + "]", true
	}
	return "", false
}

// answerRequest replies to a question of the server.
func (d *jsonrpc) answerRequest(c *conn, id json.RawMessage, method string, params []byte) error {
	if c.out.backlogged() > int(c.o.MaxMessage) {
		return violation("it asks its host faster than it reads the answers")
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
		failure, err := json.Marshal(map[string]any{"code": codeMethodNotFound, "message": "this client does not offer " + method})
		if err != nil {
			return err
		}
		msg.WriteString(`,"error":` + string(failure) + `}`)
	}
	c.out.send(d.framing.wrap(nil, msg.Bytes()), nil) // a stream that takes no more ends the Conn by itself
	return nil
}
