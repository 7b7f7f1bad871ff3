//go:build linux || darwin

package process

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// limitSelf puts the limits on this process, before it executes another program. It returns the limit on open files where the
// host allows less than was asked for.
func limitSelf(l processLimits) (openFiles uint64, err error) {
	if l.Nice != 0 {
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, l.Nice); err != nil {
			return 0, fmt.Errorf("limits.nice = %d cannot be set: %w; only a privileged agent may go below its own priority", l.Nice, err)
		}
	}
	if err := limitSelfHere(l); err != nil {
		return 0, err
	}
	if l.CPUSeconds > 0 {
		// At the soft limit the program gets XCPU, which ends it unless it is handled; at the hard one KILL.
		if err := lowerLimit(unix.RLIMIT_CPU, l.CPUSeconds, l.CPUSeconds+1); err != nil {
			return 0, fmt.Errorf("limits.cpu_time cannot be set: %w", err)
		}
	}
	if l.OpenFiles > 0 {
		return limitOpenFiles(l.OpenFiles)
	}
	return 0, nil
}

// lowerLimit sets a limit; one that is lower already stays.
func lowerLimit(resource int, soft, hard uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(resource, &now); err != nil {
		return err
	}
	return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: min(soft, now.Max), Max: min(hard, now.Max)})
}

// limitOpenFiles raises the host's own limit where that is needed and allowed. It uses package syscall, which otherwise would restore
// the limit it found at the start of this program when it executes another.
func limitOpenFiles(n uint64) (lower uint64, err error) {
	err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n})
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) {
		var now syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
			return 0, fmt.Errorf("limits.open_files cannot be set: %w", err)
		}
		n, lower = now.Max, now.Max
		err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n})
	}
	if err != nil {
		return 0, fmt.Errorf("limits.open_files cannot be set: %w", err)
	}
	return lower, nil
}

func closeOnExec(fd int) { syscall.CloseOnExec(fd) }

// execute replaces the running program; it returns only if it fails.
func execute(program string, args, env []string) error { return syscall.Exec(program, args, env) }

// become makes this process run as the account; nil changes nothing.
func (a *account) become() error {
	if a == nil {
		return nil
	}
	if !a.KeepGroups {
		groups := make([]int, len(a.Groups))
		for i, gid := range a.Groups {
			groups[i] = int(gid)
		}
		if err := syscall.Setgroups(groups); err != nil {
			return fmt.Errorf("take the groups of pool.user: %w; the agent must be privileged for that", err)
		}
	}
	if err := syscall.Setgid(int(a.GID)); err != nil {
		return fmt.Errorf("run with group %d (pool.group): %w; the agent must be privileged for that", a.GID, err)
	}
	if err := syscall.Setuid(int(a.UID)); err != nil {
		return fmt.Errorf("run as user %d (pool.user): %w; the agent must be privileged for that", a.UID, err)
	}
	return nil
}
