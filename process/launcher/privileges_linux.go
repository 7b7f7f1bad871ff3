package launcher

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// forbidNewPrivileges keeps this process and all its descendants from gaining privileges by executing a program.
func forbidNewPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("deny the worker new privileges: %w", err)
	}
	return nil
}
