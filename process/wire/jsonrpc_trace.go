package wire

import (
	"bytes"
	"encoding/json"
)

// Headers of the W3C trace context, which JSON-RPC carries in params._meta, as MCP servers expect it.
const (
	traceparentHeader = "traceparent"
	tracestateHeader  = "tracestate"
)

// withTrace adds the trace context of the headers to params, which paramsOf has checked. A context that params has already stays. Of a request
// without params only an MCP server gets some: others may reject them.
func withTrace(params []byte, headers map[string]string, mcp bool) []byte {
	parent := headers[traceparentHeader]
	if parent == "" || len(params) == 0 && !mcp || len(params) > 0 && params[0] != '{' {
		return params
	}
	own := map[string]any{traceparentHeader: parent}
	if state := headers[tracestateHeader]; state != "" {
		own[tracestateHeader] = state
	}
	if len(params) == 0 {
		return metaMember(own, []byte(`}`))
	}
	if !bytes.Contains(params, []byte(`"_meta"`)) && !bytes.Contains(params, []byte(`\u`)) { // an escape may spell it, too
		return metaMember(own, params[1:])
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(params, &members) != nil {
		return params
	}
	given, has := members["_meta"]
	if !has {
		return metaMember(own, params[1:])
	}
	var meta map[string]json.RawMessage
	if json.Unmarshal(given, &meta) != nil || meta == nil || meta[traceparentHeader] != nil {
		return params
	}
	for key, value := range own {
		meta[key], _ = json.Marshal(value) // a string never fails
	}
	merged, err := json.Marshal(meta)
	if err != nil {
		return params
	}
	members["_meta"] = merged
	if out, err := json.Marshal(members); err == nil {
		return out
	}
	return params
}

// metaMember returns an object of _meta and what follows the opening brace in rest.
func metaMember(meta map[string]any, rest []byte) []byte {
	text, _ := json.Marshal(meta) // strings never fail
	out := append(make([]byte, 0, len(text)+len(rest)+len(`{"_meta":,`)), `{"_meta":`...)
	out = append(out, text...)
	if trimmed := bytes.TrimLeft(rest, " \t"); trimmed[0] != '}' {
		out = append(out, ',')
	}
	return append(out, rest...)
}
