//go:build !linux

package process

// Protect does nothing: macOS shows a process's environment to its own user and to root only, which is what Protect can achieve.
func Protect() error { return nil }
