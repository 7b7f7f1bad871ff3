package launcher

import (
	"fmt"
	"syscall"
)

// dropPrivileges keeps this process and all its descendants from writing core files, which would hold what clients sent. macOS cannot
// forbid new privileges.
func dropPrivileges() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("disable the worker's core files: %w", err)
	}
	return nil
}
