package launcher

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// dropPrivileges keeps this process and all its descendants from gaining privileges by executing a program, and from writing core files,
// which would hold what clients sent.
func dropPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("deny the worker new privileges: %w", err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("disable the worker's core files: %w", err)
	}
	return nil
}
