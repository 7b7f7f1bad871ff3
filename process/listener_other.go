//go:build !linux

package process

// This system does not report which process listens on a port, nor which ports it chooses itself.

func (p *Process) ownsPort(int) bool { return true }
func lastEphemeralPort() int         { return 0 }
