package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

const containerImage = "localhost/tempool-kind:1"

func init() {
	kindsUnderTest[spec.KindContainer] = kindUnderTest{
		spec: func(*testing.T) spec.Spec { return containerSpec() },
		open: func(t *testing.T, change ...func(*Config)) *Supervisor {
			setUpEngine(t)
			return open(t, change...)
		},
	}
}

// containerSpec is the worker of the tests of kinds in a container.
func containerSpec() spec.Spec {
	sp := spec.Default()
	sp.Pool.Name, sp.Pool.Kind, sp.Pool.Image, sp.Pool.Command =
		"p", spec.KindContainer, containerImage, []string{"/worker"}
	sp.Pool.RunArgs, sp.Pool.Env = []string{"--pull=never", "--network=none"}, map[string]string{kindWorkerEnv: "1"}
	return sp
}

// setUpEngine gives the test a storage of its own for containers, with an image of this test binary and its libraries.
// runc is the runtime that works with cgroups of both versions, and the engine may not raise its own limits everywhere.
func setUpEngine(t *testing.T) {
	t.Helper()
	need.Root(t) // an engine without root depends on how its host is set up
	need.Program(t, engineName, "runc")
	dir, err := os.MkdirTemp("", "tempool-engine")
	require.NoError(t, err)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
		return path
	}
	t.Setenv("CONTAINERS_STORAGE_CONF",
		write("storage.conf", fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n",
			filepath.Join(dir, "root"), filepath.Join(dir, "run"))))
	t.Setenv("CONTAINERS_CONF", write("containers.conf", `
[containers]
default_ulimits = ["nofile=1024:20000", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "runc"
`))
	t.Cleanup(func() {
		require.NoError(t, removeContainers(engineName, "--all"))
		podman(t, "rmi", "--all", "--force")
		require.NoError(t, os.RemoveAll(dir))
	})
	self, err := os.Executable()
	require.NoError(t, err)
	copyIn := func(from, to string) {
		write(filepath.Join("fs", to), textOf(t, from))
	}
	copyIn(self, "worker")
	libraries, _ := exec.Command("ldd", self).Output() // fails for a static binary
	for _, word := range strings.Fields(string(libraries)) {
		if strings.HasPrefix(word, "/") {
			copyIn(word, word)
		}
	}
	write("fs/etc/passwd", "root:x:0:0::/:/bin/sh\n")
	for _, name := range []string{"tmp", "proc", "sys", "dev"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, "fs", name), 0o755))
	}
	out, err := exec.Command("tar", "-C", filepath.Join(dir, "fs"), "-cf", filepath.Join(dir, "fs.tar"),
		".").CombinedOutput()
	require.NoError(t, err, string(out))
	podman(t, "import", filepath.Join(dir, "fs.tar"), containerImage)
}

// podman runs a command of the engine, as the supervisor does: beside a supervisor that reaps orphans.
func podman(t *testing.T, arguments ...string) string {
	t.Helper()
	cmd := exec.Command("podman", arguments...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := tree.StartChild(cmd)
	if err == nil {
		err = tree.WaitChild(cmd)
	}
	require.NoError(t, err, out.String())
	return strings.TrimSpace(out.String())
}

func TestAContainerHasALabelAndItsLimits(t *testing.T) {
	s := kindsUnderTest[spec.KindContainer].open(t)
	sp := containerSpec()
	sp.Limits.Memory, sp.Limits.CPU, sp.Limits.Processes = 256<<20, 0.5, 50
	sp.Pool.Env["HOME"], sp.Pool.Env["SECRET"], sp.Pool.Env["CONTAINER_HOST"] = "/home", "not for others", "nobody"
	t.Setenv("http_proxy", "of the agent")
	p := begin(t, s, sp)
	id := podman(t, "ps", "--quiet", "--filter", "label=tempool.worker=p/0", "--filter", "label=tempool.incarnation=1")
	require.NotEmpty(t, id)
	require.Equal(t, "268435456 500000000 50",
		podman(t, "inspect", "--format", "{{.HostConfig.Memory}} {{.HostConfig.NanoCpus}} {{.HostConfig.PidsLimit}}", id))
	environ := podman(t, "inspect", "--format", "{{.Config.Env}}", id)
	require.Contains(t, environ, "HOME=/home")
	require.Contains(t, environ, "SECRET=not for others")
	require.Contains(t, environ, "CONTAINER_HOST=nobody")
	require.Contains(t, environ, p.Info().Cookie)
	require.NotContains(t, environ, "CONTAINERS_CONF")
	require.NotContains(t, environ, "of the agent")
	require.NotContains(t, textOf(t, fmt.Sprintf("/proc/%d/cmdline", p.Info().PID)), "not for others")
	require.Equal(t, limits.ByEngine, p.LimitMechanisms()["memory"])

	sample, err := p.FreshSample(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, sample.Children, 2, "the engine's monitor and the worker itself")
	require.Nil(t, sample.Network, "it has none")
	stops(t, p)
	require.Empty(t, podman(t, "ps", "--all", "--quiet"))
}

func TestAContainerSpeaksJSONRPC(t *testing.T) {
	s := kindsUnderTest[spec.KindContainer].open(t)
	sp := containerSpec()
	sp.Pool.Protocol, sp.Pool.Env = spec.ProtocolJSONRPC, map[string]string{kindWorkerEnv: spec.ProtocolJSONRPC}
	p := begin(t, s, sp)
	answer, err := p.Conn().Call(t.Context(), wire.Request{Method: "echo", Payload: []byte(`{"a":1}`)})
	require.NoError(t, err)
	require.JSONEq(t, `{"a":1}`, string(answer.Payload))
	p.Kill("enough")
	require.True(t, ends(t, p).Killed)
	require.Empty(t, podman(t, "ps", "--all", "--quiet"))
}

func TestAContainerThatCannotRunSaysWhy(t *testing.T) {
	s := kindsUnderTest[spec.KindContainer].open(t)
	sp := containerSpec()
	sp.Pool.Image = "localhost/missing:1"
	startFails(t, s, launch("p/0", 1, sp), "podman could not run the container", "localhost/missing:1")
	sp = containerSpec()
	sp.Pool.Command = []string{"/nothing"}
	require.ErrorContains(t, errorOf(s.Start(t.Context(), launch("p/0", 2, sp))), "/nothing")
	require.Empty(t, podman(t, "ps", "--all", "--quiet"))
}

func TestWithoutAnEngineAContainerSaysWhatIsMissing(t *testing.T) {
	s := open(t)
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	_, err := s.Start(t.Context(), launch("p/0", 1, containerSpec()))
	require.ErrorContains(
		t, err, `pool.kind = "container" needs podman in the PATH of the agent; install it, `+
			`or place the pool by a label of hosts that have it`)
	require.NoError(t, os.WriteFile(filepath.Join(bin, "docker"), []byte("#!/bin/sh\n"), 0o755))
	_, err = s.Start(t.Context(), launch("p/0", 2, containerSpec()))
	require.ErrorContains(
		t, err, `needs podman in the PATH of the agent (docker, which is there, cannot pass descriptors to a container); `+
			`install it, or`)
}

func TestAContainerOfAKilledAgentIsRemoved(t *testing.T) {
	setUpEngine(t)
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	in, out := startKeepingAgent(t, cmd, keepingAgent{Dir: dir, Spec: containerSpec()})
	defer in.Close()
	client := printed(t, out)
	require.NotEmpty(t, podman(t, "ps", "--quiet"))
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, tree.WaitChild(cmd))
	eventually(t, func() bool { return !lives(t, client) }, "the reaper must kill the engine's client")

	variables := func() []string {
		files, err := filepath.Glob(filepath.Join(dir, variablesPrefix+"*"))
		require.NoError(t, err)
		return files
	}
	state := podman(t, "ps", "--all", "--format", `{{index .Labels "tempool.state"}}`)
	require.NotEmpty(t, state, "the engine still knows the container")
	podman(t, "run", "--detach", "--pull=never", "--network=none", "--label", "tempool.state="+state, containerImage,
		"/worker", "-test.list", "none")
	other := podman(t, "run", "--detach", "--pull=never", "--network=none", "--label", "tempool.state=another",
		containerImage, "/worker", "-test.list", "none")
	require.NotEmpty(t, variables())
	open(t, func(c *Config) { c.StateDir = dir })
	require.Empty(t, variables())
	left := podman(t, "ps", "--all", "--quiet", "--no-trunc")
	require.Equal(t, other, left, "and only of this state directory")
}
