package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/spec"
)

// paper is a hierarchy of plain files: what is written is kept, nothing is enforced.
func paper(t *testing.T, controllers string) (h hierarchy, home string) {
	t.Helper()
	mount := t.TempDir()
	home = filepath.Join(mount, "system.slice", "tempool.service")
	require.NoError(t, os.MkdirAll(home, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(home, "cgroup.controllers"), []byte(controllers+"\n"), 0o644))
	return hierarchy{
		mount: mount, self: "4:memory:/elsewhere\n0::/system.slice/tempool.service\n",
		write: func(file, text string) error {
			f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString(text + "\n")
			return err
		},
		enter: func(cmd *exec.Cmd, dir string) (func(), error) {
			return func() {}, os.WriteFile(filepath.Join(dir, "entered"), []byte(cmd.Path), 0o644)
		},
		discard: os.RemoveAll,
		lent:    func(string) bool { return true },
	}, home
}

func TestEachIncarnationGetsAControlGroupAndLeavesNone(t *testing.T) {
	h, home := paper(t, "cpuset cpu io memory pids")
	s := open(t, func(c *Config) { c.hierarchy = func() (hierarchy, error) { return h, nil } })
	read := func(parts ...string) string {
		data, err := os.ReadFile(filepath.Join(append([]string{home}, parts...)...))
		require.NoError(t, err)
		return strings.TrimSpace(string(data))
	}
	require.Equal(t, strconv.Itoa(os.Getpid()), read(agentLeaf, "cgroup.procs"), "the agent leaves the group it hands down")
	require.ElementsMatch(t, []string{"+cpu", "+memory", "+pids"}, strings.Fields(read("cgroup.subtree_control")))
	folder := workersPrefix + s.folder.id
	require.ElementsMatch(t, []string{"+cpu", "+memory", "+pids"}, strings.Fields(read(folder, "cgroup.subtree_control")))

	p := begin(t, s, limited("exec sleep 1000", spec.Limits{Memory: 64 << 20, CPU: 1.5, Processes: 10}))
	require.Equal(t, map[string]Means{"memory": ByCgroup, "cpu": ByCgroup, "processes": ByCgroup}, p.LimitMeans())
	group := filepath.Base(p.plan.cgroup.dir)
	require.Regexp(t, `^p\.0\.1\.[0-9a-f]+$`, group)
	require.Equal(t, "67108864", read(folder, group, "memory.max"))
	require.Equal(t, "0", read(folder, group, "memory.swap.max"))
	require.Equal(t, "1", read(folder, group, "memory.oom.group"))
	require.Equal(t, "150000 100000", read(folder, group, "cpu.max"))
	require.Equal(t, "10", read(folder, group, "pids.max"))
	require.FileExists(t, filepath.Join(p.plan.cgroup.dir, "entered"))

	_, err := p.ApplyLimits(spec.Limits{Memory: 32 << 20})
	require.NoError(t, err)
	require.Equal(t, "67108864\n33554432", read(folder, group, "memory.max"))
	require.Equal(t, "150000 100000\nmax 100000", read(folder, group, "cpu.max"))
	require.Equal(t, map[string]Means{"memory": ByCgroup}, p.LimitMeans())

	require.NoError(t, os.WriteFile(filepath.Join(p.plan.cgroup.dir, "memory.events"), []byte("low 0\noom 1\noom_kill 1\n"), 0o644))
	require.NoError(t, signalIdentity(p.root, 9))
	require.Contains(t, ends(t, p).Reason, `the kernel ended its tree, which needed more than limits.memory = "32MiB"`)
	require.NoDirExists(t, p.plan.cgroup.dir)

	unlimited, err := s.Start(t.Context(), launch("p/1", 1, limited("exec sleep 1000", spec.Limits{OpenFiles: 50})))
	require.NoError(t, err)
	require.Nil(t, unlimited.plan.cgroup, "who has no limit to be held by one has no group")
}

func TestAFailedStartLeavesNoControlGroup(t *testing.T) {
	h, home := paper(t, "memory")
	s := open(t, func(c *Config) { c.hierarchy = func() (hierarchy, error) { return h, nil } })
	_, err := s.Start(t.Context(), launch("p/0", 1, limited("exit 3", spec.Limits{Memory: 64 << 20, CPUAffinity: []int{4000}})))
	require.ErrorIs(t, err, ErrStartFailed)
	left, err := filepath.Glob(filepath.Join(home, workersPrefix+"*", "*", "memory.max"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestControlGroupsOfAnEarlierAgentAreKilled(t *testing.T) {
	h, home := paper(t, "memory")
	dir := t.TempDir()
	first := open(t, func(c *Config) { c.StateDir, c.hierarchy = dir, func() (hierarchy, error) { return h, nil } })
	folder := filepath.Join(home, workersPrefix+first.folder.id)
	require.NoError(t, first.Close(t.Context()))
	require.NoDirExists(t, folder)
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "left.over"), 0o755))
	killed := false
	h.write = func(write func(string, string) error) func(string, string) error {
		return func(file, text string) error {
			killed = killed || file == filepath.Join(folder, "left.over", "cgroup.kill")
			return write(file, text)
		}
	}(h.write)
	open(t, func(c *Config) { c.StateDir, c.hierarchy = dir, func() (hierarchy, error) { return h, nil } })
	require.True(t, killed)
	require.NoDirExists(t, filepath.Join(folder, "left.over"))
}

func TestWithoutDelegationNothingChangesAndTheReasonIsKnown(t *testing.T) {
	denied := os.ErrPermission
	for name, c := range map[string]struct {
		change func(*hierarchy)
		want   string
	}{
		"no such group":              {func(h *hierarchy) { h.self = "4:memory:/x\n" }, "in no control group of version 2"},
		"a unit without Delegate":    {func(h *hierarchy) { h.lent = delegatedCgroup }, "set Delegate=yes in its unit"},
		"not mounted":                {func(h *hierarchy) { h.mount = "/nowhere" }, "no control groups of version 2"},
		"the agent shares its group": {func(h *hierarchy) { h.write = refuses(h.write, "subtree_control", denied) }, "other processes must not share"},
		"the agent may not be moved": {func(h *hierarchy) { h.write = refuses(h.write, "cgroup.procs", denied) }, "move into a control group of its own"},
		"controllers it has no use of": {func(h *hierarchy) {
			require.NoError(t, os.WriteFile(filepath.Join(h.mount, "system.slice/tempool.service/cgroup.controllers"), []byte("hugetlb\n"), 0o644))
		}, "offer none of memory, cpu and pids"},
	} {
		t.Run(name, func(t *testing.T) {
			h, home := paper(t, "memory")
			c.change(&h)
			_, err := openCgroups(h, "id")
			require.ErrorContains(t, err, c.want)
			entries, err := os.ReadDir(home)
			require.NoError(t, err)
			for _, entry := range entries {
				require.False(t, entry.IsDir(), entry.Name())
			}
		})
	}
}

func refuses(write func(string, string) error, name string, err error) func(string, string) error {
	return func(file, text string) error {
		if strings.HasSuffix(file, name) {
			return err
		}
		return write(file, text)
	}
}

func TestAHostThatRefusesBirthInAControlGroupGoesWithout(t *testing.T) {
	h, home := paper(t, "memory")
	h.enter = func(cmd *exec.Cmd, _ string) (func(), error) {
		cmd.Path = "/nowhere" // what such a start fails with differs from kernel to kernel
		return func() {}, nil
	}
	s := open(t, func(c *Config) { c.hierarchy = func() (hierarchy, error) { return h, nil } })
	p := begin(t, s, limited("exec sleep 1000", spec.Limits{Memory: 64 << 20}))
	require.Equal(t, map[string]Means{"memory": BySampler}, p.LimitMeans())
	require.NoDirExists(t, filepath.Join(home, workersPrefix+s.folder.id))
}
