package process

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// disowns is escapes for a descendant that changes its mark, too.
const disowns = `
import os, resource, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        resource.prlimit(0, 10, (1000, 1000))
        os.closerange(0, 1000)
        os.execve("/bin/sh", ["sh", "-c", "echo $$ > %s; exec /bin/sleep 1000"], {})
    os._exit(0)
os.wait()
time.sleep(1000)
`

func gone(t *testing.T, id tree.Identity, message string) {
	t.Helper()
	eventually(t, func() bool { return !lives(t, id) }, message)
}

func TestNoDescendantSurvivesItsIncarnation(t *testing.T) {
	for name, user := range map[string]string{"the agent's user": "", "another user": "nobody"} {
		t.Run(name, func(t *testing.T) {
			if user != "" {
				need.Root(t)
			}
			dir, err := os.MkdirTemp("", "contain")
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
			require.NoError(t, os.Chmod(dir, 0o777))
			file := filepath.Join(dir, "pid")
			sp := sh(escapes(file))
			sp.Pool.User = user
			p := begin(t, open(t, withoutCgroups), sp)
			escaped := pidIn(t, file)
			eventually(t, func() bool {
				entry, err := tree.ReadEntry(escaped.PID)
				return err == nil && entry != nil && entry.Parent == os.Getpid()
			}, "it must be an orphan")
			stops(t, p)
			require.False(t, escaped.Exists(), "it is killed and reaped")
		})
	}
}

func TestNoDescendantSurvivesTheAgentsSIGKILL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	agent, reaper := startTestAgent(t, t.TempDir(), escapes(file))
	escaped := pidIn(t, file)
	require.NoError(t, agent.Process.Kill())
	gone(t, escaped, "the reaper must kill it")
	gone(t, reaper, "the reaper must exit")
}

func TestAnEscapedProcessIsKilledWhileItsWorkerLives(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	p := begin(t, open(t), runs("python3", "-c", fmt.Sprintf(disowns, file)))
	escaped := pidIn(t, file)
	gone(t, escaped, "an adopted process that changed its mark belongs to no known incarnation")
	require.True(t, lives(t, p.root))
}

// bystander starts somebody's shell, in a session of its own, whose child has a copy of the environment of a worker.
func bystander(t *testing.T, cookie string) (shell, child tree.Identity) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pid")
	cmd := exec.Command("sh", "-c",
		fmt.Sprintf("env %s=%s sh -c 'echo $$ > %s; exec sleep 1000' & wait", tree.CookieEnv, cookie, file))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, cmd.Start())
	child = pidIn(t, file)
	shell, found := tree.Identify(cmd.Process.Pid)
	require.True(t, found)
	t.Cleanup(func() {
		_ = tree.SignalGroup(shell.PID, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	return shell, child
}

func TestABystanderWithACopiedEnvironmentSurvives(t *testing.T) {
	dir := t.TempDir()
	config := func(c *Config) { c.StateDir = dir }
	s := open(t, config)
	p := begin(t, s, runs("sleep", "1000"))
	shell, child := bystander(t, p.Info().Cookie)
	require.NoError(t, errorOf(p.Sample(t.Context())))
	p.Kill("test")
	ends(t, p)
	require.True(t, lives(t, shell) && lives(t, child), "the end of the worker")
	s.killEscaped()
	require.NoError(t, s.Close(t.Context()))
	open(t, config)
	require.True(t, lives(t, shell) && lives(t, child), "the next agent")
}

func TestAWorkerHasNoNewPrivilegesAndNoCoreFiles(t *testing.T) {
	p := begin(t, open(t), sh(`grep NoNewPrivs /proc/self/status; ulimit -Hc; exec sleep 1000`))
	eventually(t, func() bool { return len(p.Logs()) == 2 }, "no output")
	require.Equal(t, []string{"NoNewPrivs:", "1"}, strings.Fields(p.Logs()[0].Text))
	require.Equal(t, "0", p.Logs()[1].Text)
}

func TestAnExecProbeRunsWithinTheWorkersLimits(t *testing.T) {
	sp := runs("sleep", "1000")
	sp.Limits.OpenFiles, sp.Limits.Nice = 64, 3
	sp.Health.Command = []string{"sh", "-c",
		`[ "$(ulimit -n) $(nice) $(ulimit -Hc)" = "64 3 0" ] && grep -q "NoNewPrivs:.1" /proc/self/status`}
	require.NoError(t, begin(t, open(t), sp).Probe(t.Context()))
}

func TestAWorkerCannotReadTheAgentsEnvironment(t *testing.T) {
	t.Setenv("CONTAINMENT_SECRET", "hunter2")
	out := filepath.Join(t.TempDir(), "out")
	startTestAgent(t, t.TempDir(), "{ cat /proc/$PPID/environ; echo; } > "+out+"; exec sleep 1000")
	seen := contentOf(t, out)
	require.NotContains(t, seen, "hunter2")
	require.NotContains(t, seen, "PATH=")
}

func TestAnIncarnationIsKilledByItsCgroup(t *testing.T) {
	s := open(t)
	if s.cgroups == nil {
		t.Log("cgroup v2 is not available; TestACgroupWithoutControllersOnlyContains covers the rest")
		return
	}
	file := filepath.Join(t.TempDir(), "pid")
	p := begin(t, s, sh(escapes(file)))
	escaped := pidIn(t, file)
	group := textOf(t, filepath.Join(p.plan.cgroup.Dir, "cgroup.procs"))
	require.Contains(t, strings.Fields(group), fmt.Sprint(escaped.PID))
	tree.Kill(tree.Key{Cgroup: p.plan.cgroup.Dir})
	gone(t, escaped, "the kernel must kill it")
	ends(t, p)
	require.NoDirExists(t, p.plan.cgroup.Dir)
}

func TestAStateDirectoryThatAnybodyMayWriteToIsRefused(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o777))
	_, err := Open(t.Context(), Config{StateDir: dir, HostID: "test"})
	var invalid *Error
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, CodeInvalid, invalid.Code)
	require.ErrorContains(t, err, dir+" (mode 0777,")
	require.ErrorContains(t, err, "chmod 700")
	require.NoError(t, os.Chmod(dir, 0o775)) // its group is the agent's own
	open(t, func(c *Config) { c.StateDir = dir })
}

// A worker as pool.user must not write what the next agent believes.
func TestAStateDirectoryOfAnotherUserOrGroupIsRefused(t *testing.T) {
	need.Root(t)
	for _, c := range []struct {
		name       string
		user, mode int
	}{{".", 65534, 0o755}, {recordsName, 65534, 0o700}, {".", 0, 0o770}} {
		dir := t.TempDir()
		closes(t, open(t, in(dir)))
		require.NoError(t, os.Chown(filepath.Join(dir, c.name), c.user, 65534))
		require.NoError(t, os.Chmod(filepath.Join(dir, c.name), os.FileMode(c.mode)))
		_, err := openStateDir(dir, "test")
		require.ErrorContains(t, err, fmt.Sprintf("(mode %04o, user %d, group 65534)", c.mode, c.user))
	}
}

func TestAForeignListenerOnAWorkersPortIsNotTrusted(t *testing.T) {
	dir := t.TempDir()
	ready := filepath.Join(dir, "port")
	sp := sh(`echo $PORT > ` + ready + `; exec sleep 1000`)
	sp.Health.Kind, sp.Health.Command = spec.HealthTCP, nil
	s := open(t)
	started := background(func() error { return errorOf(s.Start(t.Context(), launch("p/0", 1, sp))) })
	port := contentOf(t, ready)
	stranger, err := net.Listen("tcp", "127.0.0.1:"+port)
	require.NoError(t, err)
	defer stranger.Close()
	require.ErrorContains(t, await(t, started), "another program listens on 127.0.0.1:"+port)
}

func TestPortsAreNoneThatTheKernelGivesToOthers(t *testing.T) {
	a := portAllocator{inUse: map[int]bool{}}
	last := lastEphemeralPort()
	require.NotZero(t, last)
	if first, _ := quietPorts(last); first == 0 {
		return // this host leaves no others
	}
	for range 100 {
		port, err := a.allocate()
		require.NoError(t, err)
		require.Greater(t, port, last)
	}
}
