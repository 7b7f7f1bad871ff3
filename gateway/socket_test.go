package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestASocketWhosePathIsTooLongSaysSo(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	require.NoError(t, os.Mkdir(folder, 0o700))
	_, err := listenSocket(filepath.Join(folder, "gateway.sock"), "")
	require.ErrorIs(t, err, api.ErrInvalid)
	require.ErrorContains(t, err, "use a shorter --state-dir")
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)
}
