package spec

import (
	"bytes"
	"encoding/json"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParse holds three promises for any bytes: no panic, every error a *Error with a line inside the file, and every
// accepted spec the same after a trip through JSON.
func FuzzParse(f *testing.F) {
	full, err := os.ReadFile("testdata/full.toml")
	require.NoError(f, err)
	f.Add(full)
	for _, seed := range []string{
		"", minimal, "[pool", "[[pool]]", "pool = 3", "a.b.c = {d = [1, {e = 2}]}", "[pool]\nname = 'p'\nname = 'q'",
		"\"\" = 1", "\xff",
		minimal + "size = 0", minimal +
			"[[start.warmup]]\nmethod = 'a'\nparams = {a = -0, b = 1e21, c = 2026-01-01T00:00:00Z, d = '<>', e = [[], {}]}",
		minimal + "[start]\nwarmup = [{method = 'a', params = 07:32:00}]", minimal + "env = {A = '\\u0000'}", minimal +
			"[pool.env]\n\"a.b\" = ''",
		minimal + "protocol = 'none'\n[health]\nkind = 'exec'\ncommand = ['true']", minimal + "\"[0]\" = 1", minimal +
			"[rotation]\nsurge = true",
		minimal + "max_message = '1.5MiB'\n[lease]\nttl = '1.5h'", "[start.warmup.params]",
		"[[start.warmup]]\n[[start.warmup.params]]\nmethod = 'a'",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data, "fuzz.toml")
		if err != nil {
			e, ok := err.(*Error)
			require.True(t, ok, "%T", err)
			require.NotEmpty(t, e.Problem)
			require.LessOrEqual(t, e.Line, bytes.Count(data, []byte("\n"))+1)
			require.True(t, e.Line > 0 || len(data) > maxFile, e.Error())
			return
		}
		require.NoError(t, s.Validate())

		wire, err := json.Marshal(s)
		require.NoError(t, err)
		var read Spec
		require.NoError(t, json.Unmarshal(wire, &read))
		require.Equal(t, s, read)
	})
}

// FuzzParseEnv holds that whatever is read reads the same again in quotes, and that errors name a line.
func FuzzParseEnv(f *testing.F) {
	for _, seed := range []string{"A=1", "export A = 'x'\n#\n\nB=\"\\u00e9\\n\"\r\n", "A=\"", "A='", "=",
		"TEMPOOL_A=1", "A=\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		variables, err := ParseEnv(text)
		if err != nil {
			require.Regexp(t, "^line [0-9]+ ", err.Error())
			return
		}
		for name, value := range variables {
			again, err := ParseEnv(name + "=" + strconv.Quote(value))
			require.NoError(t, err)
			require.Equal(t, map[string]string{name: value}, again)
		}
	})
}

// FuzzUnits holds that whatever is read as a duration or a size reads the same again from its own text.
func FuzzUnits(f *testing.F) {
	for _, seed := range []string{"", "0", "30s", "1h0m", "-5m", "512MiB", "1.5GB", "9223372036854775807B", "1e9B"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var d, again Duration
		if d.UnmarshalText([]byte(text)) == nil {
			require.NoError(t, again.UnmarshalText([]byte(d.String())))
			require.Equal(t, d, again)
		}
		if b, err := parseBytes(text); err == nil {
			require.GreaterOrEqual(t, b, Bytes(0))
			again, err := parseBytes(b.String())
			require.NoError(t, err)
			require.Equal(t, b, again)
		}
	})
}
