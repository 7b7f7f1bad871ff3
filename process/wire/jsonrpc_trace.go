package wire

import (
	"bytes"
	"encoding/json"
)

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
