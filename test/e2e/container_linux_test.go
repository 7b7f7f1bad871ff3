package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/spec"
)

const boxImage = "localhost/tempool-e2e:1"

// engine is the host's podman with storage and settings of its own.
type engine struct {
	t           *testing.T
	environment []string
}

// newEngine returns an engine with an image of the SDK's test worker.
func newEngine(t *testing.T) engine {
	need.Root(t) // podman without root depends on how its host is set up
	need.Program(t, "podman", "runc")
	dir, err := os.MkdirTemp("", "tempool-engine") // the paths of t.TempDir are too long for podman's sockets
	require.NoError(t, err)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	storage := fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n", filepath.Join(dir, "root"),
		filepath.Join(dir, "run"))
	const settings = `
[containers]
default_ulimits = ["nofile=1024:20000", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "runc"
`
	e := engine{t, []string{"CONTAINERS_STORAGE_CONF=" + write("storage.conf", storage), "CONTAINERS_CONF=" +
		write("containers.conf", settings)}}
	t.Cleanup(func() {
		e.run("rm", "--all", "--force")
		e.run("rmi", "--all", "--force")
		require.NoError(t, os.RemoveAll(dir))
	})
	files := filepath.Join(dir, "fs")
	require.NoError(t, os.Mkdir(files, 0o755))
	build := exec.Command("go", "build", "-o", filepath.Join(files, "worker"), "../../sdk/go/internal/testworker")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // the image has no libraries
	outputOf(t, build)
	for _, name := range []string{"tmp", "proc", "sys", "dev"} {
		require.NoError(t, os.Mkdir(filepath.Join(files, name), 0o755))
	}
	archive := filepath.Join(dir, "fs.tar")
	outputOf(t, exec.Command("tar", "-C", files, "-cf", archive, "."))
	e.run("import", archive, boxImage)
	return e
}

func (e engine) run(arguments ...string) string {
	e.t.Helper()
	cmd := exec.Command("podman", arguments...)
	cmd.Env = append(os.Environ(), e.environment...)
	return strings.TrimSpace(outputOf(e.t, cmd))
}

// TestAContainerPoolFromItsStartToItsStop kills a container, lets a program exit unasked, restarts the worker, reads
// what it received, and stops the pool.
func TestAContainerPoolFromItsStartToItsStop(t *testing.T) {
	t.Parallel()
	boxes := newEngine(t)
	network := newMachine(t, 2)
	env := newEnvWith(t)
	env.startAgentBy(append([]string{"env"}, boxes.environment...), "boxes")
	s := patient(spec.Default())
	s.Pool.Name, s.Pool.Size, s.Pool.Kind, s.Pool.Image, s.Pool.Command =
		"boxes", 1, spec.KindContainer, boxImage, []string{"/worker"}
	s.Pool.RunArgs = []string{"--pull=never", "--network=ns:/run/netns/" + network.name}
	pool := env.startPool(s)

	// serves waits until an incarnation after the given one answers, and returns it and its container, the only one.
	serves := func(after int64) (incarnation int64, container string) {
		t.Helper()
		require.Eventually(t, func() bool {
			var answer tempool.Answer
			var got int
			err := pool.With(tempool.CallOptions{Answered: func(a tempool.Answer) { answer = a }}).Call(t.Context(), "square",
				map[string]int{"x": 12}, &got)
			incarnation = answer.Incarnation
			return err == nil && got == 144 && incarnation > after
		}, waitTimeout, 50*time.Millisecond, "no incarnation after %d answers", after)
		require.Eventually(t, func() bool {
			all := strings.Fields(boxes.run("ps", "--all", "--quiet", "--no-trunc", "--filter", "label=tempool.worker=boxes/0"))
			container = strings.Join(all, " ")
			return len(all) == 1
		}, waitTimeout, 200*time.Millisecond, "the containers of earlier incarnations are removed")
		require.Equal(t, container, boxes.run("ps", "--quiet", "--no-trunc", "--filter",
			fmt.Sprintf("label=tempool.incarnation=%d", incarnation)))
		return incarnation, container
	}
	first, container := serves(0)
	boxes.run("kill", container)
	second, replaced := serves(first)
	require.NotEqual(t, container, replaced)

	require.ErrorIs(t, pool.Call(t.Context(), "die", nil, nil), tempool.ErrWorkerCrashed)
	third, _ := serves(second)

	env.restart(pool, api.RestartRequest{Worker: new(int)})
	serves(third)

	datagrams, err := net.Dial("udp", net.JoinHostPort(network.its, "9"))
	require.NoError(t, err)
	defer datagrams.Close()
	gateway := env.gatewayClient("boxes")
	env.waitFor(pool, "what the container received is known", func(v api.PoolWorkers) bool {
		_, _ = datagrams.Write(make([]byte, 1000)) // fails after the container has answered that nobody listens
		n, seen := v.Workers[0].Network, readScrape(t, gateway)
		counted := func(name string, least float64) bool {
			found := seen.series(name, "pool", "boxes", "worker", "boxes/0")
			return len(found) == 1 && found[0].GetCounter().GetValue() >= least
		}
		return n != nil && n.ReceivedBytes >= 2000 && n.SentBytes > 0 &&
			counted("tempool_worker_network_receive_bytes_total", 2000) &&
			counted("tempool_worker_network_transmit_bytes_total", 1)
	})

	env.stopPool(pool)
	require.Empty(t, boxes.run("ps", "--all", "--quiet"), "nothing is left")
}
