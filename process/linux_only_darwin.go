package process

// macOS does not report which process listens on a port, nor which ports it chooses itself.

func (p *Process) ownsPort(int) bool { return true }
func lastEphemeralPort() int         { return 0 }

// withUmask fails: outside Linux an umask belongs to the whole process, so it would also apply to the agent's files.
func withUmask(int, func() error) error {
	return coded(CodeInvalid, nil, "pool.umask works on Linux only; set the umask of the agent, or in the program")
}

// Protect does nothing: macOS shows a process's environment to its own user and to root only, which is what Protect can
// achieve.
func Protect() error { return nil }
