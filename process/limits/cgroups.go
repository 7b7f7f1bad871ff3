package limits

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// Names in the agent's part of the cgroup hierarchy.
const (
	// AgentLeaf holds the agent's own processes: a cgroup that delegates controllers to its children may hold no process
	// itself.
	AgentLeaf = "tempool-agent"
	// WorkersPrefix begins the name of the cgroup that holds one cgroup per incarnation; the state directory's id follows.
	WorkersPrefix = "tempool-workers-"
)

// cgroupControllers are the controllers that enforce limits.
var cgroupControllers = []string{"memory", "cpu", "pids"}

// CgroupFS is access to the cgroup file system; tests use one of plain files.
type CgroupFS struct {
	Mount  string // of the cgroup v2 hierarchy
	Self   string // the content of /proc/self/cgroup
	Write  func(file, text string) error
	Attach func(cmd *exec.Cmd, dir string) (afterStart func(), err error)
	Rmdir  func(dir string) error
	// Delegated reports whether systemd or another manager of the cgroup leaves it to the agent.
	Delegated func(dir string) bool
}

// Cgroups are the cgroups of one agent.
type Cgroups struct {
	// Controllers are the usable ones. Without any, cgroups enforce no limit, but can still be killed at once.
	Controllers map[string]bool
	// Withheld is why the agent uses no controller although there are some; "" if it does.
	Withheld string

	fs   CgroupFS
	home string // the cgroup that was delegated to the agent
	dir  string // holds one cgroup per incarnation
}

// OpenCgroups takes over the cgroup that this process runs in: it moves the process into a leaf, delegates the
// controllers, and makes a cgroup for the workers, named by id. outlived says that workers may outlive the agent. Its
// error says why cgroups cannot be used; the process may be in the leaf then, where the same limits hold.
func OpenCgroups(h CgroupFS, id string, outlived bool) (*Cgroups, error) {
	path, err := ownCgroup(h.Self)
	if err != nil {
		return nil, err
	}
	home := filepath.Join(h.Mount, strings.TrimSuffix(path, "/"+AgentLeaf))
	c := &Cgroups{fs: h, home: home, dir: filepath.Join(home, WorkersPrefix+id), Controllers: map[string]bool{}}
	if !h.Delegated(home) {
		return nil, errors.New("systemd has not delegated the agent's cgroup; set Delegate=yes in its unit")
	}
	offered, err := os.ReadFile(filepath.Join(home, "cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("no cgroup v2: %w", err)
	}
	for _, name := range strings.Fields(string(offered)) {
		if slices.Contains(cgroupControllers, name) {
			c.Controllers[name] = true
		}
	}
	if len(c.Controllers) > 0 && outlived && filepath.Ext(home) == ".service" {
		// The kernel lets nobody into the group of a unit while its subgroups have controllers and processes: systemd fails
		// with 219/CGROUP.
		c.Controllers, c.Withheld = map[string]bool{}, "systemd could not start the next agent of this unit while "+
			"processes that were kept have controllers (--keep-processes)"
	}
	if err := c.delegate(path); err != nil {
		return nil, err
	}
	return c, nil
}

// ownCgroup finds the path in the cgroup v2 hierarchy, whose line has the number 0.
func ownCgroup(self string) (string, error) {
	for line := range strings.Lines(self) {
		if path, found := strings.CutPrefix(strings.TrimSpace(line), "0::"); found && strings.HasPrefix(path, "/") {
			return path, nil
		}
	}
	return "", errors.New("this process is in no cgroup v2")
}

// delegate moves the agent into its leaf and enables the controllers for the workers' cgroup.
func (c *Cgroups) delegate(path string) error {
	if filepath.Base(path) != AgentLeaf && len(c.Controllers) > 0 {
		leaf := filepath.Join(c.home, AgentLeaf)
		if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("the agent's cgroup is not delegated to it: %w", err)
		}
		if err := c.fs.Write(filepath.Join(leaf, "cgroup.procs"), strconv.Itoa(os.Getpid())); err != nil {
			return fmt.Errorf("move the agent into its own cgroup: %w", err)
		}
	}
	if err := c.enableControllers(c.home); err != nil {
		return fmt.Errorf("delegate controllers (no other process may share the agent's cgroup): %w", err)
	}
	if err := os.Mkdir(c.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make a cgroup for workers: %w", err)
	}
	if err := c.enableControllers(c.dir); err != nil {
		return fmt.Errorf("delegate controllers: %w", err)
	}
	return nil
}

func (c *Cgroups) enableControllers(dir string) error {
	for name := range c.Controllers {
		if err := c.fs.Write(filepath.Join(dir, "cgroup.subtree_control"), "+"+name); err != nil {
			return err
		}
	}
	return nil
}

// Probe starts cmd, which must exit on its own, in a cgroup. Old kernels and some sandboxes refuse that.
func (c *Cgroups) Probe(cmd *exec.Cmd) error {
	name := "trial." + tree.RandomHex(4) // an agent that was killed may have left its own
	g, err := c.Create(name, newCgroupLimits(spec.Limits{}))
	if err != nil {
		return err
	}
	defer func() { _ = c.fs.Rmdir(g.Dir) }()
	afterStart, err := g.Attach(cmd)
	if err != nil {
		return err
	}
	defer afterStart()
	if err := tree.StartChild(cmd); err != nil {
		return fmt.Errorf("start a process in a cgroup: %w", err)
	}
	_ = tree.WaitChild(cmd) // only its start matters
	return nil
}

// Find returns the cgroup in a directory of this agent's, which an earlier agent has made; nil for any other directory.
func (c *Cgroups) Find(dir string) *Cgroup {
	if c == nil || dir == "" || filepath.Dir(dir) != c.dir {
		return nil
	}
	return &Cgroup{Dir: dir, cgroups: c}
}

// Sweep kills and removes the cgroups of an earlier agent but those to keep. It does nothing on nil.
func (c *Cgroups) Sweep(logger *slog.Logger, keep ...string) {
	if c == nil {
		return
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		logger.Warn("cannot remove the cgroups of an earlier agent", "error", err)
	}
	for _, entry := range entries {
		dir := filepath.Join(c.dir, entry.Name())
		if entry.IsDir() && !slices.Contains(keep, dir) {
			(&Cgroup{Dir: dir, cgroups: c}).Remove(logger)
		}
	}
}

// Close removes the workers' cgroup. The agent stays in its leaf, since it is about to exit. It does nothing on nil.
func (c *Cgroups) Close() {
	if c != nil {
		_ = c.fs.Rmdir(c.dir) // fails while a cgroup in it holds a process that cannot be killed
	}
}
