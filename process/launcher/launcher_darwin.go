package launcher

import "errors"

// forbidNewPrivileges does nothing: macOS cannot forbid new privileges.
func forbidNewPrivileges() error { return nil }

// setMark does nothing: only Linux has marks.
func setMark(uint64) error { return nil }

// applyOS has nothing to set: limits.NewPlan rejects the limits that only Linux has.
func (l Limits) applyOS() error { return nil }

// Bind is never called: only Linux has templates.
func Bind(int, []int) error { return errors.ErrUnsupported }
