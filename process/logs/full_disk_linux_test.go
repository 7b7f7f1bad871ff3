package logs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/need"
)

func TestAFullDiskDropsLinesAndCountsThem(t *testing.T) {
	dir := t.TempDir()
	need.Disk(t, dir, "size=256k")
	full := filepath.Join(dir, "full")
	require.Error(t, os.WriteFile(full, make([]byte, 1<<20), 0o600)) // takes all the space

	s := open(t, filepath.Join(dir, "logs"))
	out := s.Output("p/0", 1)
	out.Add(Stdout, "the first")
	require.Len(t, read(t, s, "p/0"), 1)
	const lines = 50_000
	for i := range lines {
		out.Add(Stdout, fmt.Sprintf("%d %s", i, strings.Repeat("x", 50)))
	}
	readable := read(t, s, "p/0") // out of memory
	require.True(t, strings.HasPrefix(readable[len(readable)-1].Text, fmt.Sprintf("%d ", lines-1)))

	require.NoError(t, os.Remove(full))
	out.Add(Stdout, "there is space")
	require.Eventually(t, func() bool {
		files, err := filepath.Glob(filepath.Join(dir, "logs", "p%2F0", "*.log"))
		bytes, _ := sizeOf(dir)
		return err == nil && len(files) > 0 && bytes > 64<<10
	}, waitTimeout, 10*time.Millisecond)
	kept := read(t, s, "p/0")
	require.Equal(t, "the first", kept[0].Text, "what was to be written is not dropped")
	require.Equal(t, "there is space", kept[len(kept)-1].Text)
	require.Positive(t, dropped(t, kept))
	out.Close()
	s.Close() // before the file system is unmounted
}
