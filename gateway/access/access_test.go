package access

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func newToken(name string, pools []string, rights ...string) (Token, string) {
	secret, hash := NewSecret()
	return Token{Name: name, SHA256: hash, Pools: pools, Rights: rights,
		CreatedAt: time.Now().UTC().Truncate(time.Second)}, secret
}

func TestATokenGrantsItsRightsOnItsPools(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.toml")
	ci, secret := newToken("ci", []string{"py*", "js"}, "call", "lease")
	ci.MaxPriority = new(3)
	all, other := newToken("ops", []string{"*"}, All.Names()...)
	require.NoError(t, Add(path, ci))
	require.NoError(t, Add(path, all))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(text), secret)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	tokens, err := OpenTokens(path)
	require.NoError(t, err)
	p := tokens.Lookup(secret)
	require.NotNil(t, p)
	require.Equal(t, "token ci", p.Name)
	require.Equal(t, 3, p.MaxPriority)
	require.True(t, p.Has(Call|Lease))
	require.False(t, p.Has(Call|Read))
	require.False(t, p.EveryPool())
	for pool, may := range map[string]bool{"py": true, "python": true, "js": true, "jsx": false, "go": false, "": false} {
		require.Equal(t, may, p.MayUse(pool), pool)
	}
	require.True(t, tokens.Lookup(other).EveryPool())
	require.Equal(t, All, tokens.Lookup(other).Rights)
	for _, unknown := range []string{"", secret + "x", secret[1:], ci.SHA256, string(make([]byte, 200))} {
		require.Nil(t, tokens.Lookup(unknown))
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { tokens.Lookup(secret) }), "a lookup is part of every call")

	require.NoError(t, Remove(path, "ci"))
	require.NotNil(t, tokens.Lookup(secret), "not read again yet")
	require.NoError(t, tokens.Reload())
	require.Nil(t, tokens.Lookup(secret))
	require.NoError(t, os.WriteFile(path, []byte("nonsense"), 0o600))
	require.ErrorIs(t, tokens.Reload(), api.ErrInvalid)
	require.NotNil(t, tokens.Lookup(other), "a mistake in the file locks nobody out")
}

func TestMistakesInATokensFileAreNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.toml")
	_, hash := NewSecret()
	entry := func(name, hash, pools, rights string) string {
		return fmt.Sprintf("[[token]]\nname = %q\nsha256 = %q\npools = %s\nrights = %s\n", name, hash, pools, rights)
	}
	good := entry("a", hash, `["*"]`, `["call"]`)
	for says, text := range map[string]string{
		"is not valid":                      "[[token]\n",
		"sha256 is":                         entry("a", "secret", `["*"]`, `["call"]`),
		"unknown right \"write\"":           entry("a", hash, `["*"]`, `["write"]`),
		"no right given":                    entry("a", hash, `["*"]`, `[]`),
		"pools is missing":                  entry("a", hash, `[]`, `["call"]`),
		"is not a glob":                     entry("a", hash, `["[a"]`, `["call"]`),
		"invalid token name":                entry("a b", hash, `["*"]`, `["call"]`),
		"twice":                             good + good,
		"max_priority is 10":                good + "max_priority = 10\n",
		"strict mode":                       good + "secret = \"x\"\n",
		"chmod 600":                         "",
		"cannot read the tokens file: stat": "-",
	} {
		t.Run(says, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			require.NoError(t, os.Chmod(path, 0o600))
			switch text {
			case "":
				require.NoError(t, os.Chmod(path, 0o620))
			case "-":
				require.NoError(t, os.Remove(path))
			}
			_, err := OpenTokens(path)
			require.ErrorIs(t, err, api.ErrInvalid)
			require.ErrorContains(t, err, says)
		})
	}
	path = filepath.Join(t.TempDir(), "tokens.toml")
	valid, _ := newToken("b", []string{"*"}, "call")
	require.NoError(t, Add(path, valid))
	require.ErrorIs(t, Add(path, valid), api.ErrInvalid, "the name is taken")
	require.ErrorIs(t, Remove(path, "c"), api.ErrInvalid)
	require.ErrorIs(t, Add(path, Token{Name: "d"}), api.ErrInvalid)
}

func TestConcurrentEditsLoseNoToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.toml")
	var group sync.WaitGroup
	for i := range 20 {
		token, _ := newToken(fmt.Sprint("t", i), []string{"*"}, "read")
		group.Go(func() {
			if err := Add(path, token); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	file, err := ReadFile(path)
	require.NoError(t, err)
	require.Len(t, file.Tokens, 20)
}
