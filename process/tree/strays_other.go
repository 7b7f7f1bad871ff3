//go:build !linux

package tree

// KillStrays does nothing: only Linux has marks, and programs that adopt processes.
func KillStrays(func(Identity, int, Mark) bool) (killed int, err error) { return 0, nil }
