package launcher

import (
	"errors"
	"fmt"
	"os"
	"slices"
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
	if len(l.Affinity) > 0 {
		if err := setAffinity(0, l.Affinity); err != nil {
			return err
		}
	}
	if l.OOMScoreAdj != 0 {
		return setOOMScoreAdj("self", l.OOMScoreAdj)
	}
	return nil
}

// setAffinity binds a thread to cores. The kernel ignores cores that it does not have; setAffinity fails for them.
func setAffinity(tid int, cores []int) error {
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

// Change changes the limits that differ, on a running process and all its threads.
func Change(pid int, before, after Limits) error {
	if after.OpenFiles != before.OpenFiles {
		if err := setRlimit(pid, unix.RLIMIT_NOFILE, after.OpenFiles, after.OpenFiles); err != nil {
			return fmt.Errorf("limits.open_files: %w", err)
		}
	}
	if after.CPUSeconds != before.CPUSeconds {
		if err := setRlimit(pid, unix.RLIMIT_CPU, after.CPUSeconds, after.CPUSeconds+1); err != nil {
			return fmt.Errorf("limits.cpu_time: %w", err)
		}
	}
	if after.OOMScoreAdj != before.OOMScoreAdj {
		if err := setOOMScoreAdj(strconv.Itoa(pid), after.OOMScoreAdj); err != nil {
			return err
		}
	}
	threads, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return fmt.Errorf("list the threads of process %d: %w", pid, err)
	}
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err == nil {
			err = changeThread(tid, before, after)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// setRlimit sets a limit of another process; 0 means no limit. Only a privileged agent may raise a hard limit.
func setRlimit(pid, resource int, soft, hard uint64) error {
	if soft == 0 {
		soft, hard = unix.RLIM_INFINITY, unix.RLIM_INFINITY
	}
	if resource == unix.RLIMIT_NOFILE && soft == unix.RLIM_INFINITY {
		return errors.New("this limit cannot be removed from a running process")
	}
	return unix.Prlimit(pid, resource, &unix.Rlimit{Cur: soft, Max: hard}, nil)
}

func changeThread(tid int, before, after Limits) error {
	if after.Nice != before.Nice {
		if err := unix.Setpriority(unix.PRIO_PROCESS, tid, after.Nice); err != nil {
			return fmt.Errorf("limits.nice: %w", err)
		}
	}
	if slices.Equal(after.Affinity, before.Affinity) {
		return nil
	}
	if len(after.Affinity) > 0 {
		return setAffinity(tid, after.Affinity)
	}
	var all unix.CPUSet // that the agent itself may use
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("limits.cpu_affinity: %w", err)
	}
	return unix.SchedSetaffinity(tid, &all)
}
