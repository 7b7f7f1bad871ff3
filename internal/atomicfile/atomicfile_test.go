package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func streamed(path string, content []byte, mode os.FileMode) error {
	return StreamDurably(path, mode, func(out io.Writer) error {
		for _, b := range content {
			if _, err := out.Write([]byte{b}); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestAFileIsReplacedWithItsMode(t *testing.T) {
	for name, write := range map[string]func(string, []byte, os.FileMode) error{"Write": Write,
		"WriteDurably": WriteDurably, "StreamDurably": streamed} {
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
	failure := errors.New("no space left")
	require.ErrorIs(t, StreamDurably(filepath.Join(folder, "other"), 0o600, func(out io.Writer) error {
		_, err := out.Write([]byte("half"))
		return errors.Join(err, failure)
	}), failure)
	entries, err = os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Error(t, WriteDurably(filepath.Join(folder, "missing", "file"), nil, 0o600))
}
