package launcher

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Limits are those that a process sets on itself and its descendants inherit. A zero field leaves the limit alone.
type Limits struct {
	OpenFiles   uint64 `json:"open_files,omitempty"`
	CPUSeconds  uint64 `json:"cpu_seconds,omitempty"`
	Affinity    []int  `json:"affinity,omitempty"`
	Nice        int    `json:"nice,omitempty"`
	OOMScoreAdj int    `json:"oom_score_adj,omitempty"`
}

// apply sets the limits on this process, before it executes another program. If the host allows fewer open files, apply
// sets that limit and returns it.
func (l Limits) apply() (openFiles uint64, err error) {
	if l.Nice != 0 {
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, l.Nice); err != nil {
			return 0, fmt.Errorf("set limits.nice = %d: %w; only a privileged agent may lower it below its own", l.Nice, err)
		}
	}
	if err := l.applyOS(); err != nil {
		return 0, err
	}
	if l.CPUSeconds > 0 {
		// At the soft limit the kernel sends SIGXCPU, which ends the program unless it handles the signal; at the hard limit
		// SIGKILL.
		if err := lowerRlimit(unix.RLIMIT_CPU, l.CPUSeconds, l.CPUSeconds+1); err != nil {
			return 0, fmt.Errorf("set limits.cpu_time: %w", err)
		}
	}
	if l.OpenFiles > 0 {
		return setOpenFiles(l.OpenFiles)
	}
	return 0, nil
}

// lowerRlimit sets a limit but never raises it.
func lowerRlimit(resource int, soft, hard uint64) error {
	var current syscall.Rlimit
	if err := syscall.Getrlimit(resource, &current); err != nil {
		return err
	}
	return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: min(soft, current.Max), Max: min(hard, current.Max)})
}

// setOpenFiles raises the hard limit where needed and allowed. It uses package syscall, since syscall.Exec restores the
// limit from the start of this program unless package syscall changed it.
func setOpenFiles(n uint64) (lower uint64, err error) {
	err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n})
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) {
		var current syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &current); err != nil {
			return 0, fmt.Errorf("set limits.open_files: %w", err)
		}
		lower = current.Max
		err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: lower, Max: lower})
	}
	if err != nil {
		return 0, fmt.Errorf("set limits.open_files: %w", err)
	}
	return lower, nil
}
