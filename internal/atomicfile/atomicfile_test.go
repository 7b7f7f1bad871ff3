package atomicfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFileIsReplacedWithItsMode(t *testing.T) {
	for name, write := range map[string]func(string, []byte, os.FileMode) error{"Write": Write, "WriteDurably": WriteDurably} {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, []byte("old"), 0o644), name)
		require.NoError(t, write(path, []byte("new"), 0o600), name)
		content, err := os.ReadFile(path)
		require.NoError(t, err, name)
		require.Equal(t, "new", string(content), name)
		info, err := os.Stat(path)
		require.NoError(t, err, name)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
}

func TestAFailureLeavesTheOldFileAndNothingElse(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "file")
	require.NoError(t, os.MkdirAll(filepath.Join(path, "in the way"), 0o755))
	require.Error(t, Write(path, []byte("new"), 0o600))
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Error(t, WriteDurably(filepath.Join(folder, "missing", "file"), nil, 0o600))
}
