package gateway

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/internal/need"
)

func TestTheSocketNeedsNoMoreOfAFullDiskThanItself(t *testing.T) {
	dir := t.TempDir()
	need.Disk(t, dir, "mode=0700,nr_inodes=2")
	path := filepath.Join(dir, "s.sock")
	for range 2 { // the second one replaces the first one's socket
		listener, err := listenSocket(path, "")
		require.NoError(t, err)
		conn, err := net.Dial("unix", path)
		require.NoError(t, err)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		require.NoError(t, conn.Close())
		require.NoError(t, listener.UnixListener.Close()) // as if killed
	}
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fill"), nil, 0o600))
	_, err := listenSocket(path, "")
	require.ErrorIs(t, err, unix.ENOSPC)
	require.ErrorContains(t, err, "check that its disk has space")
}
