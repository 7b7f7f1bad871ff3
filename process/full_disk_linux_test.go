package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/need"
)

func TestAProcessWorksOnWhileTheDiskOfItsLogIsFull(t *testing.T) {
	dir := t.TempDir()
	need.Disk(t, dir, "size=2m,mode=700")
	s := open(t, func(c *Config) { c.StateDir = filepath.Join(dir, "state") })
	p := begin(t, s, python(t, `
@tempool.method
def talk(lines):
    for i in range(lines): print(f"{i} says the worker, and more than one word of it", flush=False)
    sys.stdout.flush()
`))
	full := filepath.Join(dir, "full")
	require.Error(t, os.WriteFile(full, make([]byte, 4<<20), 0o600)) // takes all the space
	require.Equal(t, "null", call(t, p, "talk", "100000"))
	require.Equal(t, "hello", call(t, p, "echo", "hello"))
	last := "stdout: 99999 says the worker, and more than one word of it"
	eventually(t, func() bool { return slices.Contains(logOf(t, s, "p/0", 0), last) }, "the log is readable out of memory")
	require.NoError(t, os.Remove(full))
	require.Equal(t, "null", call(t, p, "talk", "1"))
	eventually(t, func() bool {
		files, err := filepath.Glob(filepath.Join(dir, "state", logsName, "p%2F0", "*.log"))
		var stored strings.Builder
		for _, file := range files {
			text, readErr := os.ReadFile(file)
			err = errors.Join(err, readErr)
			stored.Write(text)
		}
		return err == nil && strings.Contains(stored.String(), "99999 says the worker") &&
			strings.Contains(stored.String(), "lines dropped")
	}, "what memory held is on disk, with the number of lines that are not")
	require.Equal(t, "hello", call(t, p, "echo", "hello"))
}
