package need

import (
	"syscall"
	"testing"
)

// Disk puts a file system in memory on a folder until the test ends, which must leave no file open there. The options
// are those of tmpfs(5): size=2m. It skips a test that may not mount one.
func Disk(t testing.TB, folder, options string) {
	t.Helper()
	RightTo(t, "mount a file system", syscall.Mount("tmpfs", folder, "tmpfs", 0, options))
	t.Cleanup(func() {
		if err := syscall.Unmount(folder, 0); err != nil {
			t.Errorf("unmount %s: %v", folder, err)
		}
	})
}
