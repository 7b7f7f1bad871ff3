package spec

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/redact"
)

func TestASpecHidesWhatItMarksAsSecret(t *testing.T) {
	s := good()
	s.Pool.Env = map[string]string{"KEY": "s3cret"}
	s.Pool.Command = []string{
		"serve", "--password", "s3cret", "--api-key=s3cret", "--token", "--max-tokens", "512", "--token-file", "/run/token",
		"-v",
		"postgres://me:s3cret@db/x?ssl=1", "https://host/hook?access_token=s3cret&page=2",
		"sh -c 'DB_PASSWORD=s3cret exec run --fast=1'",
	}
	s.Pool.RunArgs = []string{"-e", "ANY=s3cret", "--env=OTHER=s3cret", "-eTHIRD=s3cret", "--env", "INHERITED",
		"--env", "FOURTH=s3cret", "-v", "/data:/data"}
	s.Health.Command = []string{"curl", "-H", "Authorization: Bearer s3cret", "http://localhost/"}
	s.Health.Path = "/healthz?token=s3cret"
	s.Start.Warmup = []Warmup{{Method: "init",
		Params: json.RawMessage(
			`{"clientSecret":"s3cret","depth":3,"urls":["redis://:s3cret@db"],"login":{"password":"s3cret","name":"me"},` +
				`"token":["s3cret"],"passphrase":"","secret":4711}`)}, {Method: "ready"}}
	s.Sessions.URL = "redis://s3cret@db"
	s.Pool.Image = "docker://s3cret@registry/image"
	given, err := json.Marshal(s)
	require.NoError(t, err)
	hidden, err := json.Marshal(s.WithoutSecrets())
	require.NoError(t, err)
	again, err := json.Marshal(s)
	require.NoError(t, err)
	require.Equal(t, string(given), string(again), "the spec itself is as it was")
	require.JSONEq(t, strings.NewReplacer("redis://s3cret@db", Hidden, "Bearer s3cret", Hidden, `["s3cret"]`, `"(hidden)"`,
		"4711", `"(hidden)"`, "s3cret", Hidden).Replace(string(given)), string(hidden))
	require.NotContains(t, s.WithoutSecrets().Text(), "s3cret")
	for _, change := range ChangesWithoutSecrets(Default(), s) {
		require.NotContains(t, change.From+change.To, "s3cret")
	}
	for _, kind := range []string{KindProcess, KindContainer} {
		s.Pool.Kind = kind
		require.Contains(t, s.Pool.Program(), "serve --password (hidden)")
		require.NotContains(t, s.Pool.Program(), "s3cret")
	}
}

func TestASpecWithoutSecretsStaysAsItIs(t *testing.T) {
	require.Equal(t, good(), good().WithoutSecrets())
	require.Equal(t, Default(), Default().WithoutSecrets())
}

func TestChangesNameEachKeyOnceAndSecretsOnlyAsHidden(t *testing.T) {
	from, to := good(), good()
	require.Empty(t, Changes(from, to))
	from.Pool.Env = map[string]string{"SAME": "1", "GONE": "2", "KEY": "old"}
	to.Pool.Env = map[string]string{"SAME": "1", "NEW": "", "KEY": "new"}
	from.Pool.Command, to.Pool.Command = []string{"run", "--token=old"}, []string{"run", "--token=new"}
	from.Isolation.Env = map[string]string{"MODEL": "key"}
	to.Isolation.Env, to.MCP.Env = map[string]string{"MODEL": "header:X-Model"}, map[string]string{"USER": "header:X-User"}
	to.Pool.Size, to.Sessions.URL, to.Rotation.Surge = 9, "redis://:new@db", false
	want := []Change{
		{"pool.size", "4", "9"}, {"pool.command", `["run", "--token=old"]`, `["run", "--token=new"]`},
		{"pool.env.GONE", `"2"`, ""}, {"pool.env.KEY", `"old"`, `"new"`}, {"pool.env.NEW", "", `""`},
		{"rotation.surge", "true", "false"}, {"isolation.env.MODEL", `"key"`, `"header:X-Model"`},
		{"mcp.env.USER", "", `"header:X-User"`}, {"sessions.url", `""`, `"redis://:new@db"`},
	}
	require.Equal(t, want, Changes(from, to))
	want[1].From, want[1].To = `["run", "--token=(hidden)"]`, `["run", "--token=(hidden)"]`
	want[2].From, want[3].From, want[3].To, want[8].To = Hidden, Hidden, Hidden, `"(hidden)"`
	require.Equal(t, want, ChangesWithoutSecrets(from, to))
}

func TestAnErrorOfASpecHidesSecrets(t *testing.T) {
	for _, text := range []string{
		"[pool]\nname = \"p\"\nimage = \"https://s3cret@registry/an image\"",
		"[pool]\nname = \"p\"\ncommand = [\"x\"]\n[health]\npath = \"https://me:s3cret@h/\"",
		"[pool]\nname = \"p\"\ncommand = [\"x\"]\n[health]\npath = \"healthz?token=s3cret\"",
		"[pool]\nname = \"p\"\ncommand = [\"x\"]\n[health]\npath = \"x://s3cret" + strings.Repeat("x", 2*maxQuotedRunes) +
			"@h/\"",
	} {
		_, err := Parse([]byte(text), "pool.toml")
		require.ErrorContains(t, err, "is not allowed")
		require.ErrorContains(t, err, Hidden)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

func TestAdviceReadsLikeNoSecret(t *testing.T) {
	for _, k := range keys {
		require.Equal(t, k.allowed, redact.Text(k.allowed), k.key())
	}
}
