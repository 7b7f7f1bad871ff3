package mcp

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/spec"
)

func TestClientsOfASharedProcessGetTheirVersionIfTheServerHasIt(t *testing.T) {
	greeting := json.RawMessage(`{"protocolVersion":"2025-06-18","capabilities":{"logging":{},"tasks":{},"tools":{},` +
		`"resources":{"subscribe":true,"listChanged":true}},"serverInfo":{"name":"s","version":"1"}}`)
	for asked, want := range map[string]string{"2024-11-05": "2024-11-05", "2025-06-18": "2025-06-18",
		"2025-11-25": "2025-06-18", "1999-01-01": "2025-06-18", "": "2025-06-18"} {
		params, err := json.Marshal(map[string]string{"protocolVersion": asked})
		require.NoError(t, err)
		require.JSONEq(t, `{"protocolVersion":"`+want+`","capabilities":{"tools":{},"resources":{"listChanged":true}},`+
			`"serverInfo":{"name":"s","version":"1"}}`, string(sharedResult(greeting, params, spec.MCPRequest)), asked)
	}
	require.NotPanics(t, func() { sharedResult(json.RawMessage(`[]`), json.RawMessage(`7`), spec.MCPShared) })
}

func FuzzMembers(f *testing.F) {
	for _, seed := range []string{`{"a":1,"b" : {"c":"}\\""} , "\\u0064":[ ] }`, `{}`, `[]`, `{"`, `{"a"`, `{"a":`, `{"a":"\`,
		`{"a":{`, `{"a":true}`, ` {"a":-1.5e3 ,"a":null}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := map[string]json.RawMessage{}
		for name, value := range members(text) {
			got[name] = value
		}
		var want map[string]json.RawMessage
		if json.Unmarshal(text, &want) == nil && utf8.Valid(text) && want != nil {
			require.Equal(t, want, got)
		}
	})
}

// What parse accepts is passed on in one line, as what it was.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":[1,"é\n"]}}`, "[]", "{",
		`{"jsonrpc":"2.0","method":"n"}`, "{\"jsonrpc\":\"2.0\",\n\"id\":\"a\",\"result\":{\r\n}}",
		`{"jsonrpc":"2.0","id":1,"error":{"code":-1}}`, `{"jsonrpc":"2.0","id":null,"method":"a"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := parse(body)
		if err != nil {
			require.IsType(t, &failure{}, err)
			return
		}
		passed := request(m.ID, m.Method, m.Params)
		if m.Method == "" {
			passed = response(m.ID, m.Result, nil)
			if m.Error != nil {
				passed = response(m.ID, m.Error, nil)
			}
		}
		require.NotContains(t, string(passed), "\n")
		require.NotContains(t, string(passed), "\r")
		again, err := parse(passed)
		require.NoError(t, err, "%s", passed)
		require.Equal(t, m.ID, again.ID)
		require.Equal(t, m.Method, again.Method)
		require.Equal(t, m.Params, again.Params)
	})
}

// A header says what an argument does if it is its text, or that in base64, and not if it is another text.
func FuzzHeader(f *testing.F) {
	for _, seed := range [][2]string{{"a", "a"}, {"=?base64?YQ==?=", "a"}, {"=?base64?%?=", "%"}, {"é", "é"},
		{"=?base64?", "=?base64?"}, {"=?base64?=", "x"}, {"42.0", "42"}, {"a\tb", "a\tb"}, {"", ""}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, header, text string) {
		if !utf8.ValidString(text) {
			return
		}
		value, err := json.Marshal(text)
		require.NoError(t, err)
		require.True(t, saysSame("=?base64?"+base64.StdEncoding.EncodeToString([]byte(text))+"?=", value))
		said, valid := decoded(header)
		require.Equal(t, valid && said == text, saysSame(header, value))
		if valid && said != header {
			require.Contains(t, header, "=?base64?")
		}
	})
}
