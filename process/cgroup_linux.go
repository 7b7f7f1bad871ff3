package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// hostHierarchy is the kernel's.
func hostHierarchy() (hierarchy, error) {
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return hierarchy{}, fmt.Errorf("find this process's control group: %w", err)
	}
	return hierarchy{mount: cgroupMount, self: string(self), write: writeCgroupFile, enter: enterCgroup, discard: os.Remove,
		lent: delegatedCgroup}, nil
}

// delegatedCgroup asks for systemd's mark on the groups of units with Delegate=yes. In others systemd may undo what is set, so they are
// left alone; groups that are no unit's, such as a container's, have no such master.
func delegatedCgroup(dir string) bool {
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

// writeCgroupFile makes no file: one that is missing is a feature that is.
func writeCgroupFile(name, text string) error {
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}

// enterCgroup has the child be born in the group, so there is no moment at which it is outside.
func enterCgroup(cmd *exec.Cmd, dir string) (left func(), err error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the program's control group: %w", err)
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(folder.Fd())
	return func() { folder.Close() }, nil
}
