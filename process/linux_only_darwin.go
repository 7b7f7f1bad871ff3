package process

// macOS does not report which process listens on a port, nor which ports it chooses itself.

func (p *Process) ownsPort(int) bool { return true }
func lastEphemeralPort() int         { return 0 }

// Protect does nothing: macOS shows a process's environment to its own user and to root only, which is what Protect can
// achieve.
func Protect() error { return nil }
