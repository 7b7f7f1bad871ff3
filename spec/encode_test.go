package spec

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEncodeWritesWhatParseReads(t *testing.T) {
	s := good()
	s.Pool.Env = map[string]string{"A": "it's \"quoted\"\n\ttwice", "with.dot": ""}
	s.Pool.Command = []string{"run", "", "--x=\\'", "é\u0001"}
	s.Pool.Protocol, s.Pool.MaxMessage = ProtocolJSONRPC, 3<<19
	s.Recovery.BackoffMultiplier = 2
	s.Start.Warmup = []Warmup{
		{Method: "initialize", Params: json.RawMessage(`{"a":[1,{"b":"c\nd"},[],{}],"e f":1.5,"g":true,"h":1e+300,"i":-0,"j":{"k":{}}}`)},
		{Method: "initialized", Params: json.RawMessage(`[]`), Notification: true},
	}
	text, err := Encode(s)
	require.NoError(t, err)
	again, err := Parse(text, "encoded.toml")
	require.NoError(t, err, string(text))
	require.Equal(t, s, again, string(text))
}

func TestEncodeWritesDefaults(t *testing.T) {
	text, err := Encode(good())
	require.NoError(t, err)
	require.Contains(t, string(text), "\nurl = ''\n")
	require.Contains(t, string(text), "affinity_ttl")
	require.Contains(t, string(text), "[lease]\nttl = '1m'\nmax_ttl = '24h'\nidle_return = '2s'\non_expiry = 'replace'\n")
}

func TestEncodeRejectsInvalidSpecs(t *testing.T) {
	_, err := Encode(Default())
	require.ErrorContains(t, err, "pool.name: is missing")
	for params, want := range map[string]string{
		`{"a": [null]}`: "start.warmup[0].params: contain a null, which TOML cannot represent",
		`{"a": 1e999}`:  "start.warmup[0].params: contain the number 1e999, which TOML cannot represent",
	} {
		s := good()
		s.Start.Warmup = []Warmup{{Method: "a", Params: json.RawMessage(params)}}
		_, err := Encode(s)
		require.ErrorContains(t, err, want)
	}
}
