package process

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// kernelMeans is what every Linux has, cgroups apart.
func kernelMeans() hostMeans {
	return hostMeans{rlimits: true, affinity: true, cores: allowedCores(), oomScoreAdj: true, changeLimits: true}
}

// allowedCores are those that the agent may use; nil if the kernel does not say.
func allowedCores() (cores []int) {
	var allowed unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) != nil {
		return nil
	}
	for core := 0; len(cores) < allowed.Count(); core++ {
		if allowed.IsSet(core) {
			cores = append(cores, core)
		}
	}
	return cores
}

// limitSelfHere sets what only Linux has.
func limitSelfHere(l processLimits) error {
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

// setAffinity binds a thread to cores. The kernel passes over cores that are not there; that is refused here.
func setAffinity(tid int, cores []int) error {
	var wanted, got unix.CPUSet
	for _, core := range cores {
		wanted.Set(core)
	}
	if err := unix.SchedSetaffinity(tid, &wanted); err != nil {
		if errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("limits.cpu_affinity = %v names no core that this host lets the agent use", cores)
		}
		return fmt.Errorf("limits.cpu_affinity cannot be set: %w", err)
	}
	if err := unix.SchedGetaffinity(tid, &got); err != nil {
		return fmt.Errorf("limits.cpu_affinity cannot be checked: %w", err)
	}
	for _, core := range cores {
		if !got.IsSet(core) {
			return fmt.Errorf("limits.cpu_affinity = %v: this host has no core %d, or does not let the agent use it", cores, core)
		}
	}
	return nil
}

func setOOMScoreAdj(pid string, score int) error {
	if err := os.WriteFile("/proc/"+pid+"/oom_score_adj", []byte(strconv.Itoa(score)), 0); err != nil {
		return fmt.Errorf("limits.oom_score_adj = %d cannot be set: %w; only a privileged agent may go below its own", score, err)
	}
	return nil
}

// changeLimits changes what differs, on a process and all its threads.
func changeLimits(pid int, before, after processLimits) error {
	if after.OpenFiles != before.OpenFiles {
		if err := setLimit(pid, unix.RLIMIT_NOFILE, after.OpenFiles, after.OpenFiles); err != nil {
			return fmt.Errorf("limits.open_files: %w", err)
		}
	}
	if after.CPUSeconds != before.CPUSeconds {
		if err := setLimit(pid, unix.RLIMIT_CPU, after.CPUSeconds, after.CPUSeconds+1); err != nil {
			return fmt.Errorf("limits.cpu_time: %w", err)
		}
	}
	if after.OOMScoreAdj != before.OOMScoreAdj {
		if err := setOOMScoreAdj(strconv.Itoa(pid), after.OOMScoreAdj); err != nil {
			return err
		}
	}
	tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return fmt.Errorf("list the threads of process %d: %w", pid, err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err == nil {
			err = changeThread(tid, before, after)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// setLimit takes 0 for no limit, which is another's to give back only with privilege.
func setLimit(pid, resource int, soft, hard uint64) error {
	if soft == 0 {
		soft, hard = unix.RLIM_INFINITY, unix.RLIM_INFINITY
	}
	if resource == unix.RLIMIT_NOFILE && soft == unix.RLIM_INFINITY {
		return errors.New("the limit cannot be lifted from a process that runs under one")
	}
	return unix.Prlimit(pid, resource, &unix.Rlimit{Cur: soft, Max: hard}, nil)
}

func changeThread(tid int, before, after processLimits) error {
	if after.Nice != before.Nice {
		if err := unix.Setpriority(unix.PRIO_PROCESS, tid, after.Nice); err != nil {
			return fmt.Errorf("limits.nice: %w", err)
		}
	}
	if slices.Equal(after.Affinity, before.Affinity) {
		return nil
	}
	cores := after.Affinity
	if len(cores) == 0 { // as many as the agent itself may use
		var all unix.CPUSet
		if err := unix.SchedGetaffinity(0, &all); err != nil {
			return fmt.Errorf("limits.cpu_affinity: %w", err)
		}
		return unix.SchedSetaffinity(tid, &all)
	}
	return setAffinity(tid, cores)
}
