//go:build !linux && !darwin

package limits

import "errors"

// Nothing in this file is reached: process.Open fails on these systems.

var errUnsupported = errors.New("not supported on this system")

func DetectHost() Host                         { return Host{} }
func (PerProcess) Apply() (uint64, error)      { return 0, errUnsupported }
func Change(int, PerProcess, PerProcess) error { return errUnsupported }
