package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

const (
	// maxToolPages bounds the pages of a list of tools that are asked for, maxTools the lists that are remembered.
	maxToolPages = 100
	maxTools     = 1000
)

// toolsOf says whose list of tools it is: a pool's servers, or one that has started for a key.
type toolsOf struct{ pool, key string }

// tools are those of a program some of whose arguments headers repeat (x-mcp-header).
type tools struct {
	program  spec.Pool
	greeting string                         // of the server that has listed them
	params   map[string]map[string][]string // by tool and header: the path to the argument
}

// checkParams returns what is wrong with the headers Mcp-Param-* of a tool's call, nil for nothing: others may have
// decided by them.
func (e *Endpoint) checkParams(ctx context.Context, h http.Header, q Request, s *session, m message,
	greeting json.RawMessage) error {
	var tool string
	if _ = json.Unmarshal(member(m.Params, "name"), &tool); !q.Spec.MCP.Serves(tool) {
		return nil // the call is refused, without a word about a tool that is hidden
	}
	known, err := e.annotated(ctx, q, s, m, greeting)
	if err != nil {
		return err
	}
	for name, path := range known[tool] {
		value := member(m.Params, "arguments")
		for _, step := range path {
			value = member(value, step)
		}
		name = "Mcp-Param-" + name
		given := h.Values(name)
		matches := len(given) == 0
		if value != nil && string(value) != "null" {
			matches = len(given) == 1 && saysSame(given[0], value)
		}
		if !matches {
			return &failure{http.StatusBadRequest, codeHeader,
				"the header " + name + " is missing, or does not say what " + strings.Join(path, ".") + " does", nil}
		}
	}
	return nil
}

// saysSame reports whether a header says what a string, an integer or a boolean in JSON does.
func saysSame(header string, value json.RawMessage) bool {
	header, valid := decoded(header)
	var text string
	if json.Unmarshal(value, &text) == nil {
		return valid && header == text
	}
	a, err := strconv.ParseFloat(header, 64)
	b, notNumber := strconv.ParseFloat(string(value), 64)
	same := err == nil && notNumber == nil && a == b && math.Abs(a) < 1<<53 // 42.0 is 42
	return valid && (header == string(value) || same)
}

// decoded is the text of a header that may be in base64. It reports false for what no client may send.
func decoded(header string) (string, bool) {
	if strings.ContainsFunc(header, func(r rune) bool { return r != '\t' && (r < ' ' || r > '~') }) {
		return "", false
	}
	coded, found := strings.CutPrefix(header, "=?base64?")
	if !found || !strings.HasSuffix(coded, "?=") {
		return header, true
	}
	text, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(coded, "?="))
	return string(text), err == nil
}

// annotated are the tools that the server has listed last. It is asked for a list if it is a new one.
func (e *Endpoint) annotated(ctx context.Context, q Request, s *session, m message,
	greeting json.RawMessage) (map[string]map[string][]string, error) {
	of := toolsOf{q.Pool, s.call.Key}
	e.mu.Lock()
	t, found := e.tools[of]
	e.mu.Unlock()
	if found && t.greeting == string(greeting) && reflect.DeepEqual(&t.program, &q.Spec.Pool) {
		return t.params, nil
	}
	t = tools{q.Spec.Pool, string(greeting), map[string]map[string][]string{}}
	meta := withMember(withMember(member(m.Params, "_meta"), "progressToken", nil), metaLogLevel, nil)
	params := withMember(json.RawMessage("{}"), "_meta", meta)
	for range maxToolPages {
		page, err := result(e.config.Pool.CallPool(ctx, q.Pool, s.callOf(q, "tools/list", params)))
		if _, refused := errors.AsType[*wire.RemoteError](err); refused {
			return nil, nil // what the server does not list, it cannot annotate
		} else if err != nil {
			return nil, err
		}
		addTools(t.params, page)
		cursor := member(page, "nextCursor")
		if cursor == nil || string(cursor) == "null" {
			break
		}
		params = withMember(params, "cursor", cursor)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.tools) >= maxTools {
		clear(e.tools)
	}
	e.tools[of] = t
	return t.params, nil
}

// learnTools notes a page of a list that a client gets: the tools may have changed.
func (e *Endpoint) learnTools(of toolsOf, page json.RawMessage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t, found := e.tools[of]; found {
		t.params = maps.Clone(t.params) // others read it
		addTools(t.params, page)
		e.tools[of] = t
	}
}

// forgetTools has the servers of a pool asked again.
func (e *Endpoint) forgetTools(pool string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.tools, func(of toolsOf, _ tools) bool { return of.pool == pool })
}

func addTools(params map[string]map[string][]string, page json.RawMessage) {
	var list struct {
		Tools []struct {
			Name        string
			InputSchema json.RawMessage
		}
	}
	_ = json.Unmarshal(page, &list) // what has no list has no tools
	for _, tool := range list.Tools {
		delete(params, tool.Name)
		if strings.Contains(string(tool.InputSchema), "x-mcp-header") {
			params[tool.Name] = map[string][]string{}
			addParams(params[tool.Name], nil, tool.InputSchema)
		}
	}
}

// addParams adds the annotated arguments of a schema, which is at a path.
func addParams(params map[string][]string, path []string, schema json.RawMessage) {
	for name, property := range members(member(schema, "properties")) {
		at := append(slices.Clone(path), name)
		var header string
		if json.Unmarshal(member(property, "x-mcp-header"), &header) == nil && header != "" {
			params[header] = at
		}
		addParams(params, at, property)
	}
}
