package launcher

import (
	"fmt"
	"syscall"
)

// become makes this process run with the credentials.
func (c *Credentials) become() error {
	if c == nil {
		return nil
	}
	if !c.KeepGroups {
		groups := make([]int, len(c.Groups))
		for i, gid := range c.Groups {
			groups[i] = int(gid)
		}
		if err := syscall.Setgroups(groups); err != nil {
			return fmt.Errorf("set the groups of pool.user: %w; the agent must be privileged for that", err)
		}
	}
	if err := syscall.Setgid(int(c.GID)); err != nil {
		return fmt.Errorf("run with group %d (pool.group): %w; the agent must be privileged for that", c.GID, err)
	}
	if err := syscall.Setuid(int(c.UID)); err != nil {
		return fmt.Errorf("run as user %d (pool.user): %w; the agent must be privileged for that", c.UID, err)
	}
	return nil
}

// dropPrivileges keeps this process and all its descendants from gaining privileges, and from writing core files, which
// would hold what clients sent.
func dropPrivileges() error {
	if err := forbidNewPrivileges(); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("forbid the worker core files: %w", err)
	}
	return nil
}
