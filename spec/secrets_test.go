package spec

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/redact"
)

func TestASpecHidesWhatItMarksAsSecret(t *testing.T) {
	given := func() Spec {
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
		return s
	}
	s := given()
	hidden := s.WithoutSecrets()
	require.Equal(t, given(), s, "the spec itself is as it was")
	encoded, err := json.Marshal(hidden)
	require.NoError(t, err)
	require.NotContains(t, string(encoded), "s3cret")
	require.NotContains(t, hidden.Text(), "s3cret")
	require.Equal(t, []string{
		"serve", "--password", "(hidden)", "--api-key=(hidden)", "--token", "--max-tokens", "512", "--token-file",
		"/run/token", "-v",
		"postgres://me:(hidden)@db/x?ssl=1", "https://host/hook?access_token=(hidden)&page=2",
		"sh -c 'DB_PASSWORD=(hidden) exec run --fast=1'",
	}, hidden.Pool.Command)
	require.Equal(t, []string{"-e", "ANY=(hidden)", "--env=OTHER=(hidden)", "-eTHIRD=(hidden)", "--env", "INHERITED",
		"--env", "FOURTH=(hidden)", "-v", "/data:/data"}, hidden.Pool.RunArgs)
	require.Equal(t, []string{"curl", "-H", "Authorization: (hidden)", "http://localhost/"}, hidden.Health.Command)
	require.Equal(t, "/healthz?token=(hidden)", hidden.Health.Path)
	require.JSONEq(
		t, `{"clientSecret":"(hidden)","depth":3,"urls":["redis://:(hidden)@db"],"login":{"password":"(hidden)",`+
			`"name":"me"},"token":"(hidden)","passphrase":"","secret":"(hidden)"}`, string(
			hidden.Start.Warmup[0].Params))
	require.Nil(t, hidden.Start.Warmup[1].Params)
	require.Equal(t, map[string]string{"KEY": "(hidden)"}, hidden.Pool.Env)
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

func TestChangesOfSecretsAreListedWithoutThem(t *testing.T) {
	from, to := good(), good()
	from.Pool.Env = map[string]string{"SAME": "1", "GONE": "2", "KEY": "old"}
	to.Pool.Env = map[string]string{"SAME": "1", "NEW": "", "KEY": "new"}
	from.Pool.Command, to.Pool.Command = []string{"run", "--token=old"}, []string{"run", "--token=new"}
	from.Isolation.Env = map[string]string{"MODEL": "key"}
	to.Isolation.Env, to.MCP.Env = map[string]string{"MODEL": "header:X-Model"}, map[string]string{"USER": "header:X-User"}
	to.Pool.Size, to.Sessions.URL = 9, "redis://:new@db"
	require.Equal(t, []Change{
		{"pool.size", "4", "9"}, {"pool.command", `["run", "--token=(hidden)"]`, `["run", "--token=(hidden)"]`},
		{"pool.env.GONE", "(hidden)", ""}, {"pool.env.KEY", "(hidden)", "(hidden)"}, {"pool.env.NEW", "", `""`},
		{"isolation.env.MODEL", `"key"`, `"header:X-Model"`}, {"mcp.env.USER", "", `"header:X-User"`},
		{"sessions.url", `""`, `"(hidden)"`},
	}, ChangesWithoutSecrets(from, to))
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
