package limits

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// HostCgroupFS returns access to the host's cgroups.
func HostCgroupFS() (CgroupFS, error) {
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return CgroupFS{}, fmt.Errorf("find the agent's cgroup: %w", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return CgroupFS{}, fmt.Errorf("find where cgroup v2 is mounted: %w", err)
	}
	return CgroupFS{
		Mount: cgroupMount(string(mounts)), Self: string(self), Write: writeCgroupFile, Attach: startInCgroup,
		Rmdir: os.Remove, Delegated: delegatedBySystemd,
	}, nil
}

// cgroupMount returns where cgroup v2 is mounted: on a host that also uses version 1, below its usual place.
func cgroupMount(mountinfo string) string {
	for line := range strings.Lines(mountinfo) { // see proc_pid_mountinfo(5)
		mount, filesystem, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if strings.HasPrefix(filesystem, "cgroup2 ") && len(fields) > 4 && fields[3] == "/" {
			return fields[4]
		}
	}
	return "/sys/fs/cgroup"
}

// delegatedBySystemd checks the mark of units with Delegate=yes. In the cgroup of any other unit systemd may undo
// changes. A cgroup that is no unit's, such as a container's, needs no mark.
func delegatedBySystemd(dir string) bool {
	if suffix := filepath.Ext(dir); suffix != ".service" && suffix != ".scope" {
		return true
	}
	value := make([]byte, 8)
	for _, mark := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, mark, value); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// writeCgroupFile fails for a missing file, which means that the kernel lacks the feature.
func writeCgroupFile(name, text string) error {
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

// startInCgroup makes clone(2) create the child in the cgroup, so it is never outside.
func startInCgroup(cmd *exec.Cmd, dir string) (afterStart func(), err error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the worker's cgroup: %w", err)
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(folder.Fd())
	return func() { folder.Close() }, nil
}

// DetectHost returns what this Linux host offers, without cgroups.
func DetectHost() Host {
	return Host{Linux: true, Cores: allowedCores()}
}

// allowedCores returns the cores that the agent may use; nil if the kernel does not say.
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
