package limits

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tempool/tempool/spec"
)

// cpuPeriod is the kernel's default period of cpu.max, in microseconds.
const cpuPeriod = 100_000

// noLimit lifts a limit in a cgroup file.
const noLimit = "max"

// CgroupLimits are the values of all files of a cgroup that hold limits.
type CgroupLimits map[string]string

func newCgroupLimits(l spec.Limits) CgroupLimits {
	limits := CgroupLimits{
		"memory.swap.max": noLimit, "memory.max": noLimit, "cpu.max": fmt.Sprintf("%s %d", noLimit, cpuPeriod),
		"pids.max": noLimit,
	}
	if l.Memory > 0 {
		limits["memory.max"] = strconv.FormatInt(int64(l.Memory), 10)
		limits["memory.swap.max"] = "0" // limits.memory includes swap
	}
	if l.CPU > 0 {
		limits["cpu.max"] = fmt.Sprintf("%d %d", max(1000, int64(l.CPU*cpuPeriod)), cpuPeriod) // the kernel's minimum is 1 ms
	}
	if l.Processes > 0 {
		limits["pids.max"] = strconv.Itoa(l.Processes)
	}
	return limits
}

// Cgroup is the cgroup of one incarnation. A nil *Cgroup is none: OOMKilled is then false and Remove does nothing.
type Cgroup struct {
	Dir string

	cgroups *Cgroups
}

// Create makes the cgroup of an incarnation and sets its limits. name must not contain a slash.
func (c *Cgroups) Create(name string, limits CgroupLimits) (*Cgroup, error) {
	g := &Cgroup{Dir: filepath.Join(c.dir, name), cgroups: c}
	if err := os.Mkdir(g.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a cgroup: %w", err)
	}
	if err := g.SetLimits(limits); err != nil {
		_ = c.fs.Rmdir(g.Dir)
		return nil, err
	}
	return g, nil
}

// SetLimits sets the limits whose controllers are usable.
func (g *Cgroup) SetLimits(limits CgroupLimits) error {
	for _, file := range []string{"memory.swap.max", "memory.max", "cpu.max", "pids.max"} {
		controller, _, _ := strings.Cut(file, ".")
		if !g.cgroups.Controllers[controller] {
			continue
		}
		err := g.write(file, limits[file])
		if file == "memory.swap.max" && errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without swap accounting
		}
		if err != nil {
			return fmt.Errorf("set %s of a cgroup: %w", file, err)
		}
	}
	if limits["memory.max"] != noLimit && g.cgroups.Controllers["memory"] {
		// When memory runs out, the kernel kills the whole tree: with half of it gone the worker's state would be unknown.
		if err := g.write("memory.oom.group", "1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("set memory.oom.group of a cgroup: %w", err)
		}
	}
	return nil
}

func (g *Cgroup) write(file, text string) error {
	return g.cgroups.fs.Write(filepath.Join(g.Dir, file), text)
}

// Attach makes cmd start in the cgroup. The caller must call afterStart after the start.
func (g *Cgroup) Attach(cmd *exec.Cmd) (afterStart func(), err error) {
	return g.cgroups.fs.Attach(cmd, g.Dir)
}

// Enter moves a running process into the cgroup; its memory stays with the cgroup that it was allocated in. It does
// nothing on nil.
func (g *Cgroup) Enter(pid int) error {
	if g == nil {
		return nil
	}
	if err := g.write("cgroup.procs", strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("move a process into its cgroup: %w", err)
	}
	return nil
}

// OOMKilled reports whether the kernel killed a process in the cgroup because of its memory limit.
func (g *Cgroup) OOMKilled() bool {
	if g == nil {
		return false
	}
	data, err := os.ReadFile(filepath.Join(g.Dir, "memory.events"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if count, found := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); found {
			return count != "0"
		}
	}
	return false
}

const (
	removeTimeout       = 2 * time.Second
	removeRetryInterval = 5 * time.Millisecond
)

// Remove kills the processes left in the cgroup and removes it.
func (g *Cgroup) Remove(logger *slog.Logger) {
	if g == nil {
		return
	}
	_ = g.write("cgroup.kill", "1") // missing before Linux 5.14; the tree has been killed process by process
	if err := RemoveCgroup(g.Dir, g.cgroups.fs.Rmdir); err != nil {
		logger.Warn("cannot remove a cgroup", "cgroup", g.Dir, "error", err)
	}
}

// RemoveCgroup removes a cgroup once the last process has left it. It gives up after 2 seconds.
func RemoveCgroup(dir string, rmdir func(string) error) error {
	for deadline := time.Now().Add(removeTimeout); ; time.Sleep(removeRetryInterval) {
		err := rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}
