//go:build !linux

package process

// withUmask fails: outside Linux an umask belongs to the whole process, so it would also apply to the agent's files.
func withUmask(int, func() error) error {
	return coded(CodeInvalid, nil, "pool.umask works on Linux only; set the umask of the agent, or in the program")
}
