package limits

import "errors"

// DetectHost returns what macOS offers: rlimits of a process on itself, no affinity, no OOM score, no changes to other
// processes.
func DetectHost() Host { return Host{} }

// applyOS has nothing to set: NewPlan rejects the limits that only Linux has.
func (l PerProcess) applyOS() error { return nil }

// Change is not supported; Host.Linux is false.
func Change(int, PerProcess, PerProcess) error {
	return errors.New("limits of a running process cannot be changed on macOS")
}
