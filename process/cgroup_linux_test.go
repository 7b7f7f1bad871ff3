package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// fakeCgroupFS is a cgroup file system of plain files: it stores what is written and enforces nothing.
func fakeCgroupFS(t *testing.T, controllers string) (fs limits.CgroupFS, home string) {
	t.Helper()
	mount := t.TempDir()
	home = filepath.Join(mount, "system.slice", "tempool.service")
	require.NoError(t, os.MkdirAll(home, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(home, "cgroup.controllers"), []byte(controllers+"\n"), 0o644))
	return limits.CgroupFS{
		Mount: mount, Self: "4:memory:/elsewhere\n0::/system.slice/tempool.service\n",
		Write: func(file, text string) error {
			f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString(text + "\n")
			return err
		},
		Attach: func(cmd *exec.Cmd, dir string) (func(), error) {
			return func() {}, os.WriteFile(filepath.Join(dir, "entered"), []byte(cmd.Path), 0o644)
		},
		Rmdir:     os.RemoveAll,
		Delegated: func(string) bool { return true },
	}, home
}

func TestEachIncarnationHasACgroupThatIsRemovedAfterIt(t *testing.T) {
	fs, home := fakeCgroupFS(t, "cpuset cpu io memory pids")
	s := open(t, func(c *Config) { c.cgroupFS = func() (limits.CgroupFS, error) { return fs, nil } })
	read := func(parts ...string) string {
		return strings.TrimSpace(textOf(t, filepath.Join(append([]string{home}, parts...)...)))
	}
	require.Equal(t, strconv.Itoa(os.Getpid()), read(limits.AgentLeaf, "cgroup.procs"),
		"the agent leaves the cgroup that it delegates")
	require.ElementsMatch(t, []string{"+cpu", "+memory", "+pids"}, strings.Fields(read("cgroup.subtree_control")))
	folder := limits.WorkersPrefix + s.state.id
	require.ElementsMatch(t, []string{"+cpu", "+memory", "+pids"}, strings.Fields(read(folder, "cgroup.subtree_control")))

	p := begin(t, s, limited("exec sleep 1000", spec.Limits{Memory: 64 << 20, CPU: 1.5, Processes: 10}))
	require.Equal(t, map[string]limits.Mechanism{"memory": limits.ByCgroup, "cpu": limits.ByCgroup,
		"processes": limits.ByCgroup}, p.LimitMechanisms())
	group := filepath.Base(p.plan.cgroup.Dir)
	require.Regexp(t, `^p\.0\.1\.[0-9a-f]+$`, group)
	require.Equal(t, "67108864", read(folder, group, "memory.max"))
	require.Equal(t, "0", read(folder, group, "memory.swap.max"))
	require.Equal(t, "1", read(folder, group, "memory.oom.group"))
	require.Equal(t, "150000 100000", read(folder, group, "cpu.max"))
	require.Equal(t, "10", read(folder, group, "pids.max"))
	require.FileExists(t, filepath.Join(p.plan.cgroup.Dir, "entered"))

	require.NoError(t, errorOf(p.ApplyLimits(32<<20, 0)))
	require.Equal(t, "67108864\n33554432", read(folder, group, "memory.max"))
	require.Equal(t, "150000 100000\nmax 100000", read(folder, group, "cpu.max"))
	require.Equal(t, map[string]limits.Mechanism{"memory": limits.ByCgroup, "processes": limits.ByCgroup},
		p.LimitMechanisms())

	require.NoError(t, os.WriteFile(filepath.Join(p.plan.cgroup.Dir, "memory.events"),
		[]byte("low 0\noom 1\noom_kill 1\n"), 0o644))
	require.NoError(t, tree.Signal(p.root, 9))
	require.Contains(t, ends(t, p).Reason,
		`the kernel's OOM killer ended the process tree, which exceeded limits.memory = "32MiB"`)
	require.True(t, p.MemoryLimitExceeded())
	require.NoDirExists(t, p.plan.cgroup.Dir)

	unlimited := starts(t, s, launch("p/1", 1, limited("exec sleep 1000", spec.Limits{OpenFiles: 50})))
	require.NotNil(t, unlimited.plan.cgroup, "limits may be set later, and a cgroup is killed at once")
}

func TestOpenKillsTheCgroupsOfAnEarlierAgent(t *testing.T) {
	fs, home := fakeCgroupFS(t, "memory")
	dir := t.TempDir()
	first := open(t, func(c *Config) { c.StateDir, c.cgroupFS = dir, func() (limits.CgroupFS, error) { return fs, nil } })
	folder := filepath.Join(home, limits.WorkersPrefix+first.state.id)
	require.NoError(t, first.Close(t.Context()))
	require.NoDirExists(t, folder)
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "left.over"), 0o755))
	killed := false
	fs.Write = func(write func(string, string) error) func(string, string) error {
		return func(file, text string) error {
			killed = killed || file == filepath.Join(folder, "left.over", "cgroup.kill")
			return write(file, text)
		}
	}(fs.Write)
	open(t, func(c *Config) { c.StateDir, c.cgroupFS = dir, func() (limits.CgroupFS, error) { return fs, nil } })
	require.True(t, killed)
	require.NoDirExists(t, filepath.Join(folder, "left.over"))
}

func TestUnusableCgroupsAreNotUsedForAReason(t *testing.T) {
	denied := os.ErrPermission
	host, err := limits.HostCgroupFS()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*limits.CgroupFS)
		want   string
	}{
		"no cgroup v2 line": {func(fs *limits.CgroupFS) { fs.Self = "4:memory:/x\n" }, "in no cgroup v2"},
		"a unit without Delegate": {func(fs *limits.CgroupFS) { fs.Delegated = host.Delegated },
			"set Delegate=yes in its unit"},
		"not mounted": {func(fs *limits.CgroupFS) { fs.Mount = "/nowhere" }, "no cgroup v2"},
		"another process shares the cgroup": {func(fs *limits.CgroupFS) {
			fs.Write = refuses(fs.Write, "subtree_control", denied)
		}, "no other process may share"},
		"the agent cannot be moved": {func(fs *limits.CgroupFS) {
			fs.Write = refuses(fs.Write, "cgroup.procs", denied)
		}, "move the agent into its own cgroup"},
	} {
		t.Run(name, func(t *testing.T) {
			fs, home := fakeCgroupFS(t, "memory")
			c.change(&fs)
			require.ErrorContains(t, errorOf(limits.OpenCgroups(fs, "id", false)), c.want)
			entries, err := os.ReadDir(home)
			require.NoError(t, err)
			for _, entry := range entries {
				require.NotContains(t, entry.Name(), limits.WorkersPrefix)
			}
		})
	}
}

func TestACgroupWithoutControllersOnlyContains(t *testing.T) {
	fs, home := fakeCgroupFS(t, "hugetlb")
	s := open(t, func(c *Config) { c.cgroupFS = func() (limits.CgroupFS, error) { return fs, nil } })
	require.NoDirExists(t, filepath.Join(home, limits.AgentLeaf), "without controllers the agent may stay where it is")
	p := begin(t, s, limited("exec sleep 1000", spec.Limits{Memory: 64 << 20}))
	require.Equal(t, map[string]limits.Mechanism{"memory": limits.BySampler}, p.LimitMechanisms())
	require.FileExists(t, filepath.Join(p.plan.cgroup.Dir, "entered"))
	require.Equal(t, p.plan.cgroup.Dir, p.treeKey().Cgroup, "the reaper kills it by its path")
}

// The kernel refuses a process to a group whose subgroups have controllers: systemd could not start the next agent
// beside the processes that were kept.
func TestAUnitWhoseProcessesMayOutliveTheAgentKeepsItsGroupFree(t *testing.T) {
	fs, unit := fakeCgroupFS(t, "memory pids")
	s := open(t, func(c *Config) {
		c.TakeOver, c.cgroupFS = true, func() (limits.CgroupFS, error) { return fs, nil }
	})
	require.NoFileExists(t, filepath.Join(unit, "cgroup.subtree_control"))
	require.NoDirExists(t, filepath.Join(unit, limits.AgentLeaf))
	require.Contains(t, s.noCgroups, "--keep-processes")
	p := begin(t, s, limited("exec sleep 1000", spec.Limits{Memory: 64 << 20}))
	require.Equal(t, map[string]limits.Mechanism{"memory": limits.BySampler}, p.LimitMechanisms())
	require.FileExists(t, filepath.Join(p.plan.cgroup.Dir, "entered"), "its group is killed at once")
}

func TestAWorkerWithoutLimitsStartsWhereNoCgroupCanBeMade(t *testing.T) {
	fs, home := fakeCgroupFS(t, "memory")
	s := open(t, func(c *Config) { c.cgroupFS = func() (limits.CgroupFS, error) { return fs, nil } })
	require.NoError(t, os.RemoveAll(filepath.Join(home, limits.WorkersPrefix+s.state.id)))
	require.Nil(t, begin(t, s, runs("sleep", "1000")).plan.cgroup)
	_, err := s.Start(t.Context(), launch("p/1", 1, limited("exec sleep 1000", spec.Limits{Memory: 64 << 20})))
	require.ErrorContains(t, err, "make a cgroup")
}

func refuses(write func(string, string) error, name string, err error) func(string, string) error {
	return func(file, text string) error {
		if strings.HasSuffix(file, name) {
			return err
		}
		return write(file, text)
	}
}

func TestAHostThatRefusesToStartInACgroupUsesTheSampler(t *testing.T) {
	fs, home := fakeCgroupFS(t, "memory")
	fs.Attach = func(cmd *exec.Cmd, _ string) (func(), error) {
		cmd.Path = "/nowhere" // what such a start fails with differs from kernel to kernel
		return func() {}, nil
	}
	s := open(t, func(c *Config) { c.cgroupFS = func() (limits.CgroupFS, error) { return fs, nil } })
	p := begin(t, s, limited("exec sleep 1000", spec.Limits{Memory: 64 << 20}))
	require.Equal(t, map[string]limits.Mechanism{"memory": limits.BySampler}, p.LimitMechanisms())
	require.NoDirExists(t, filepath.Join(home, limits.WorkersPrefix+s.state.id))
}
