//go:build !linux

package process

import "runtime"

func keepingSupported() error {
	return coded(CodeInvalid, nil, "processes can be kept across a restart of the agent on Linux only, not on %s", runtime.GOOS)
}
