package launcher

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// forbidNewPrivileges keeps this process and all its descendants from gaining privileges by executing a program.
func forbidNewPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("deny the worker new privileges: %w", err)
	}
	return nil
}

// setMark marks this process and all its future descendants, unless the mark is 0.
func setMark(mark uint64) error {
	if mark == 0 {
		return nil
	}
	if err := unix.Setrlimit(unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: mark, Max: mark}); err != nil {
		return fmt.Errorf("mark the worker's process: %w", err)
	}
	return nil
}

// applyOS sets the limits that only Linux has.
func (l Limits) applyOS() error {
	if err := Bind(0, l.Affinity); err != nil {
		return err
	}
	if l.OOMScoreAdj != 0 {
		return setOOMScoreAdj("self", l.OOMScoreAdj)
	}
	return nil
}

// Bind binds a thread to cores, unless there are none; a tid of 0 is the calling one. The kernel ignores cores that it
// does not have; Bind fails for them.
func Bind(tid int, cores []int) error {
	if len(cores) == 0 {
		return nil
	}
	var wanted, got unix.CPUSet
	for _, core := range cores {
		wanted.Set(core)
	}
	if err := unix.SchedSetaffinity(tid, &wanted); err != nil {
		if errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("limits.cpu_affinity = %v names no core that this host lets the agent use", cores)
		}
		return fmt.Errorf("set limits.cpu_affinity: %w", err)
	}
	if err := unix.SchedGetaffinity(tid, &got); err != nil {
		return fmt.Errorf("check limits.cpu_affinity: %w", err)
	}
	for _, core := range cores {
		if !got.IsSet(core) {
			return fmt.Errorf("limits.cpu_affinity = %v: this host has no core %d, or does not let the agent use it", cores,
				core)
		}
	}
	return nil
}

func setOOMScoreAdj(pid string, score int) error {
	if err := os.WriteFile("/proc/"+pid+"/oom_score_adj", []byte(strconv.Itoa(score)), 0); err != nil {
		return fmt.Errorf("set limits.oom_score_adj = %d: %w; only a privileged agent may lower it below its own", score, err)
	}
	return nil
}
