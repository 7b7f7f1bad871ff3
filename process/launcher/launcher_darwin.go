package launcher

import "errors"

// forbidNewPrivileges does nothing: macOS cannot forbid new privileges.
func forbidNewPrivileges() error { return nil }

// setMark does nothing: only Linux has marks.
func setMark(uint64) error { return nil }

// applyOS has nothing to set: limits.NewPlan rejects the limits that only Linux has.
func (l Limits) applyOS() error { return nil }

// Change is not supported; limits.Host.Linux is false.
func Change(int, Limits, Limits) error {
	return errors.New("limits of a running process cannot be changed on macOS")
}
