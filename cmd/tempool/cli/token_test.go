package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/gateway/access"
)

func TestTokensAreAddedListedAndRemoved(t *testing.T) {
	f := newFakeControlPlane()
	path := filepath.Join(t.TempDir(), "tokens.toml")
	r := succeed(t, f, "token", "add", "ci", "--pools", "py*,js", "--rights", "call,lease", "--max-priority", "3",
		"--tokens", path)
	secret := strings.TrimSpace(r.out)
	require.True(t, strings.HasPrefix(secret, "tempool_"), r.out)
	tokens, err := access.OpenTokens(path)
	require.NoError(t, err)
	p := tokens.Lookup(secret)
	require.NotNil(t, p)
	require.Equal(t, access.Call|access.Lease, p.Rights)
	require.Equal(t, []string{"py*", "js"}, p.Pools)
	require.Equal(t, 3, p.MaxPriority)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(text), secret)

	r = succeed(t, f, "token", "add", "ops", "--rights", "admin", "--tokens", path, "-o", "json")
	made := decode[struct{ Name, Token string }](t, r)
	require.Equal(t, "ops", made.Name)
	require.NoError(t, tokens.Reload())
	require.True(t, tokens.Lookup(made.Token).EveryPool())

	r = succeed(t, f, "token", "list", "--tokens", path)
	require.Contains(t, r.out, "py*,js")
	require.NotContains(t, r.out, secret)
	succeed(t, f, "token", "remove", "ci", "--tokens", path)
	fail(t, f, "token", "remove", "ci", "--tokens", path)
	fail(t, f, "token", "add", "x", "--rights", "write", "--tokens", path)
	requireCode(t, ExitUsage, ctl(t, f, "token", "add", "x", "--tokens", path))
	requireCode(t, ExitUsage, ctl(t, f, "token", "add", "x", "--rights", "call", "--max-priority", "10", "--tokens", path))
}
