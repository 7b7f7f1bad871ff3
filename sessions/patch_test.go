package sessions

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

var invalid = &api.Error{Code: api.CodeInvalid}

// The cases of RFC 7396, appendix A.
func TestMergePatchFollowsRFC7396(t *testing.T) {
	for _, c := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{``, `{"a":{"b":null},"n":12345678901234567890.0}`, `{"a":{},"n":12345678901234567890.0}`},
	} {
		got, err := mergePatch(json.RawMessage(c[0]), json.RawMessage(c[1]))
		require.NoError(t, err)
		require.Equal(t, c[2], string(got), "%s with %s", c[0], c[1])
	}
}

func TestMergePatchRejectsInvalidJSON(t *testing.T) {
	for _, c := range [][2]string{{`{`, `{}`}, {`{}`, ``}, {`{}`, `{} {}`}, {`{}`, `{"a":}`}} {
		_, err := mergePatch(json.RawMessage(c[0]), json.RawMessage(c[1]))
		require.ErrorIs(t, err, invalid, "%s with %s", c[0], c[1])
	}
}

func TestPatchChangesTheFieldsItNames(t *testing.T) {
	s := &Session{
		ID: "a", Version: 3, TTL: spec.Duration(time.Hour), Metadata: map[string]json.RawMessage{"m": json.RawMessage("1")},
		Data: map[string]json.RawMessage{"old": json.RawMessage("1"), "deep": json.RawMessage(`{"x":1,"y":2}`),
			"flat": json.RawMessage("5")},
	}
	before := s.Clone()
	patch :=
		`{"data":{"old":null,"new":[1],"deep":{"x":null,"z":3},"flat":{"in":null}},"programs":{"p":"code"},` +
			`"metadata":null,"ttl":"10m"}`
	draft := s.Clone()
	require.NoError(t, draft.Patch(json.RawMessage(patch)))
	require.Equal(t, before, s, "a clone shares no map")
	require.Equal(t, &Session{
		ID: "a", Version: 3, TTL: spec.Duration(10 * time.Minute), Metadata: map[string]json.RawMessage{},
		Programs: map[string]json.RawMessage{"p": json.RawMessage(`"code"`)},
		Data: map[string]json.RawMessage{"new": json.RawMessage("[1]"), "deep": json.RawMessage(`{"y":2,"z":3}`),
			"flat": json.RawMessage("{}")},
	}, draft)
	require.NoError(t, draft.Patch(json.RawMessage(`{"ttl":null}`)))
	require.Zero(t, draft.TTL)
}

func TestAnInvalidPatchIsRejectedAndChangesNothing(t *testing.T) {
	for _, patch := range []string{
		``, `null`, `5`, `[]`, `{`, `{"data":5}`, `{"programs":[]}`, `{"ttl":5}`, `{"ttl":"soon"}`, `{"id":"b"}`,
		`{"version":2}`, `{"created_at":null}`, `{"last_accessed":1}`,
		`{"data":{"a":1},"dta":{}}`, `{"Data":{}}`,
	} {
		s := &Session{ID: "a", TTL: spec.Duration(time.Hour), Data: map[string]json.RawMessage{"k": json.RawMessage("1")}}
		before := s.Clone()
		require.ErrorIs(t, s.Patch(json.RawMessage(patch)), invalid, "%s", patch)
		require.Equal(t, before, s, "%s", patch)
	}
}

func FuzzPatch(f *testing.F) {
	f.Add([]byte(`{"data":{"a":{"b":null}},"ttl":"1s"}`))
	f.Add([]byte(`{"data":{"k":{"x":{"y":[{}]}}},"metadata":null}`))
	f.Add([]byte(strings.Repeat(`{"data":`, 50)))
	f.Fuzz(func(t *testing.T, patch []byte) {
		s := &Session{ID: "a", Data: map[string]json.RawMessage{"k": json.RawMessage(`{"x":1}`)}}
		if s.Patch(patch) != nil {
			return
		}
		encoded, err := s.Body()
		if err != nil {
			require.ErrorIs(t, err, invalid) // a value that is not UTF-8
			return
		}
		var again Session
		require.NoError(t, again.SetBody(encoded))
	})
}
