//go:build !linux

package tree

import "errors"

// ReadFamily always fails: one call of the system reads all processes anyway.
func ReadFamily(int) (*Table, error) {
	return nil, errors.New("this system does not list the children of processes")
}
