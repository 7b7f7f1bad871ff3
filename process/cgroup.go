package process

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

// cgroupMount is where the unified hierarchy is on hosts that have controllers in it.
const cgroupMount = "/sys/fs/cgroup"

// Names in the agent's part of the hierarchy.
const (
	agentLeaf     = "tempool-agent" // the agent's own processes: a group that hands controllers down may hold none itself
	workersPrefix = "tempool-workers-"
)

// cgroupControllers are those that limits are held with.
var cgroupControllers = []string{"memory", "cpu", "pids"}

// cpuPeriod is the kernel's default for cpu.max, in microseconds.
const cpuPeriod = 100_000

// cgroupLimits are the contents of a group's files; "max" is no limit.
type cgroupLimits map[string]string

func cgroupLimitsOf(l spec.Limits) cgroupLimits {
	limits := cgroupLimits{"memory.max": "max", "memory.swap.max": "max", "cpu.max": fmt.Sprintf("max %d", cpuPeriod), "pids.max": "max"}
	if l.Memory > 0 {
		limits["memory.max"] = strconv.FormatInt(int64(l.Memory), 10)
		limits["memory.swap.max"] = "0" // what is swapped out is memory all the same
	}
	if l.CPU > 0 {
		limits["cpu.max"] = fmt.Sprintf("%d %d", max(1000, int64(l.CPU*cpuPeriod)), cpuPeriod) // the kernel takes no less than 1 ms
	}
	if l.Processes > 0 {
		limits["pids.max"] = strconv.Itoa(l.Processes)
	}
	return limits
}

// hierarchy is how cgroups are touched; tests have one of plain files.
type hierarchy struct {
	mount   string // of the unified hierarchy
	self    string // what /proc/self/cgroup says
	write   func(file, text string) error
	enter   func(cmd *exec.Cmd, dir string) (left func(), err error)
	discard func(dir string) error
	// lent reports whether whoever manages the group has left it to us.
	lent func(dir string) bool
}

// cgroups are the groups of one supervisor.
type cgroups struct {
	hierarchy
	dir  string // holds one group per incarnation
	has  map[string]bool
	home string // the group that was delegated to the agent
}

// openCgroups takes possession of the group that this process runs in: it moves itself into a leaf, hands the controllers down, and makes
// a folder for the groups of its workers, named by id. What an earlier agent left there is killed. An error says why the host's
// groups cannot be used; then nothing has changed.
func openCgroups(h hierarchy, id string) (*cgroups, error) {
	path, err := ownCgroup(h.self)
	if err != nil {
		return nil, err
	}
	home := filepath.Join(h.mount, strings.TrimSuffix(path, "/"+agentLeaf))
	c := &cgroups{hierarchy: h, home: home, dir: filepath.Join(home, workersPrefix+id), has: map[string]bool{}}
	if !h.lent(home) {
		return nil, errors.New("systemd has not delegated this agent's control group to it: set Delegate=yes in its unit")
	}
	offered, err := os.ReadFile(filepath.Join(home, "cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("no control groups of version 2: %w", err)
	}
	for _, name := range strings.Fields(string(offered)) {
		for _, wanted := range cgroupControllers {
			if name == wanted {
				c.has[name] = true
			}
		}
	}
	if len(c.has) == 0 {
		return nil, errors.New("control groups of version 2 offer none of memory, cpu and pids here")
	}
	if err := c.handDown(path); err != nil {
		return nil, err
	}
	return c, nil
}

// ownCgroup finds the path in the unified hierarchy, whose line has the number 0.
func ownCgroup(self string) (string, error) {
	for line := range strings.Lines(self) {
		if path, found := strings.CutPrefix(strings.TrimSpace(line), "0::"); found && strings.HasPrefix(path, "/") {
			return path, nil
		}
	}
	return "", errors.New("this process is in no control group of version 2")
}

func (c *cgroups) handDown(path string) error {
	leaf := filepath.Join(c.home, agentLeaf)
	moved := false
	undo := func(err error) error {
		_ = c.discard(c.dir)
		if moved {
			_ = c.write(filepath.Join(c.home, "cgroup.procs"), strconv.Itoa(os.Getpid()))
			_ = c.discard(leaf)
		}
		return err
	}
	if filepath.Base(path) != agentLeaf {
		if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("this agent's control group is not delegated to it: %w", err)
		}
		moved = true
		if err := c.write(filepath.Join(leaf, "cgroup.procs"), strconv.Itoa(os.Getpid())); err != nil {
			return undo(fmt.Errorf("move into a control group of its own: %w", err))
		}
	}
	if err := c.enable(c.home); err != nil {
		return undo(fmt.Errorf("hand controllers down (other processes must not share the agent's control group): %w", err))
	}
	if err := os.Mkdir(c.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return undo(fmt.Errorf("make a control group for workers: %w", err))
	}
	if err := c.enable(c.dir); err != nil {
		return undo(fmt.Errorf("hand controllers down: %w", err))
	}
	return nil
}

func (c *cgroups) enable(dir string) error {
	for name := range c.has {
		if err := c.write(filepath.Join(dir, "cgroup.subtree_control"), "+"+name); err != nil {
			return err
		}
	}
	return nil
}

// try has a child be born in a group, which old kernels and some sandboxes refuse: better now than at the start of each worker.
func (c *cgroups) try() error {
	if !reaperHooked.Load() {
		return nil // this program has no way to start itself as something else, which Open is about to refuse
	}
	self, err := selfExe()
	if err != nil {
		return err
	}
	g, err := c.make("trial", cgroupLimitsOf(spec.Limits{}))
	if err != nil {
		return err
	}
	defer func() { _ = c.discard(g.dir) }()
	cmd := &exec.Cmd{Path: self, Args: []string{launcherName}, SysProcAttr: sessionAttr(nil)} // without an order it exits at once
	left, err := g.receive(cmd)
	if err != nil {
		return err
	}
	defer left()
	if err := startChild(cmd); err != nil {
		return fmt.Errorf("start a process in a control group: %w", err)
	}
	_ = waitChild(cmd) // it fails by design
	return nil
}

// sweep kills what groups of an earlier agent hold.
func (c *cgroups) sweep(logger *slog.Logger) {
	if c == nil {
		return
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		logger.Warn("control groups of an earlier agent stay", "error", err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			left := &cgroup{cgroups: c, dir: filepath.Join(c.dir, entry.Name())}
			left.remove(logger)
		}
	}
}

// close gives the workers' folder back. The agent stays in its leaf: it is about to end.
func (c *cgroups) close() {
	if c != nil {
		_ = c.discard(c.dir) // it stays while a group of it holds an immortal process
	}
}

// cgroup is the group of one incarnation.
type cgroup struct {
	*cgroups
	dir string
}

// make makes the group of an incarnation and sets its limits.
func (c *cgroups) make(name string, limits cgroupLimits) (*cgroup, error) {
	g := &cgroup{cgroups: c, dir: filepath.Join(c.dir, name)}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a control group: %w", err)
	}
	if err := g.set(limits); err != nil {
		_ = c.discard(g.dir)
		return nil, err
	}
	return g, nil
}

// set writes the limits whose controllers are there.
func (g *cgroup) set(limits cgroupLimits) error {
	for _, file := range []string{"memory.swap.max", "memory.max", "cpu.max", "pids.max"} {
		controller, _, _ := strings.Cut(file, ".")
		if !g.has[controller] {
			continue
		}
		err := g.write(filepath.Join(g.dir, file), limits[file])
		if file == "memory.swap.max" && errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without swap accounting
		}
		if err != nil {
			return fmt.Errorf("set %s of a control group: %w", file, err)
		}
	}
	if g.has["memory"] && limits["memory.max"] != "max" {
		// Half a tree is a worker in an unknown state: when memory runs out all of it goes.
		if err := g.write(filepath.Join(g.dir, "memory.oom.group"), "1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("set memory.oom.group of a control group: %w", err)
		}
	}
	return nil
}

// receive has cmd begin its life in the group. left must be called after the start.
func (g *cgroup) receive(cmd *exec.Cmd) (left func(), err error) { return g.enter(cmd, g.dir) }

// ranOutOfMemory reports whether the kernel has killed in the group because of its memory limit.
func (g *cgroup) ranOutOfMemory() bool {
	if g == nil {
		return false
	}
	data, err := os.ReadFile(filepath.Join(g.dir, "memory.events"))
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
	discardPatience = 2 * time.Second
	discardPause    = 5 * time.Millisecond
)

// remove kills what is left in the group and takes it away.
func (g *cgroup) remove(logger *slog.Logger) {
	if g == nil {
		return
	}
	_ = g.write(filepath.Join(g.dir, "cgroup.kill"), "1") // kernels before 5.14 do without; the tree has been killed by name
	deadline := time.Now().Add(discardPatience)
	for {
		err := g.discard(g.dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Now().After(deadline) {
			logger.Warn("a control group stays", "group", g.dir, "error", err)
			return
		}
		time.Sleep(discardPause)
	}
}

// cgroupName is a name for an incarnation's group, which may hold no slash.
func cgroupName(k key) string {
	return fmt.Sprintf("%s.%d.%s", strings.ReplaceAll(k.worker, "/", "."), k.incarnation, randomHex(4))
}
