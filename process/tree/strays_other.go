//go:build !linux

package tree

// OwnTrees does nothing: there are no strays to kill.
func OwnTrees(func(*Entry) bool) (release func()) { return func() {} }

// KillStrays does nothing: only Linux has marks, and programs that adopt processes.
func KillStrays() (killed int, err error) { return 0, nil }
