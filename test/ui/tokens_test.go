package ui_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/gateway/access"
)

// addToken adds a token with every right to a file.
func addToken(t *testing.T, path string) (file, secret string) {
	t.Helper()
	secret, hash := access.NewSecret()
	require.NoError(t, access.Add(path,
		access.Token{Name: "ops", SHA256: hash, Pools: []string{"*"}, Rights: access.All.Names()}))
	return path, secret
}
