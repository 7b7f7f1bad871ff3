package process

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// web is a program of protocol none that listens on $PORT after a while; /sick answers 503 and /moved redirects.
const web = `
import http.server, os, time
asked = []
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/slow" or self.path == "/worse" and asked: time.sleep(1000)
        asked.append(self.path)
        self.send_response({"/sick": 503, "/worse": 503, "/moved": 302}.get(self.path.partition("?")[0], 200))
        if self.path == "/moved": self.send_header("Location", "/sick")
        self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
`

const unixEcho = `
import os, socket
server = socket.socket(socket.AF_UNIX)
server.bind(os.environ["TEMPOOL_SOCKET"])
server.listen()
while True: server.accept()[0].close()
`

func listens(kind, script string) spec.Spec {
	sp := spec.Default()
	sp.Pool.Name, sp.Pool.Protocol, sp.Pool.Command = "p", spec.ProtocolNone, []string{"python3", "-c", script}
	sp.Health.Kind = kind
	return sp
}

// probeAs probes once under another health section than the one the process was started with.
func probeAs(p *Process, change func(*spec.Health)) error {
	p.spec.Health.Timeout = spec.Duration(waitTimeout)
	change(&p.spec.Health)
	return p.Probe(context.Background())
}

func TestAProgramThatListensOnItsPortIsReady(t *testing.T) {
	p := begin(t, open(t), listens(spec.HealthHTTP, web))
	require.Nil(t, p.Conn())
	require.Equal(t, "127.0.0.1:"+strconv.Itoa(p.plan.address.port), p.Info().Address)
	conn, err := net.Dial("tcp", p.Info().Address)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.NoError(t, p.Probe(t.Context()))
	require.NoError(t, probeAs(p, func(h *spec.Health) { h.Path = "/moved" }), "a redirect is an answer below 400")
	require.ErrorContains(t, probeAs(p, func(h *spec.Health) { h.Path = "/sick" }), "GET /sick answered 503")
	err = probeAs(p, func(h *spec.Health) { h.Path, h.Timeout = "/slow", spec.Duration(50*time.Millisecond) })
	require.ErrorContains(t, err, "no answer within health.timeout (50ms)")
	require.NoError(t, probeAs(p, func(h *spec.Health) { h.Kind = spec.HealthTCP }))
	require.ErrorContains(t, probeAs(p, func(h *spec.Health) { h.Port = 1 }), "refused")
}

func TestAProgramThatListensOnItsSocketIsReady(t *testing.T) {
	p := begin(t, open(t), listens(spec.HealthTCP, unixEcho))
	require.Equal(t, p.plan.address.socket, p.Info().Address)
	require.NoError(t, p.Probe(t.Context()))

	// The program puts a link to a socket of the agent, or a name of it, in the place of its own.
	elsewhere := filepath.Join(p.plan.address.dir, "a")
	agents, err := net.Listen("unix", elsewhere)
	require.NoError(t, err)
	defer agents.Close()
	for _, put := range []func(string, string) error{os.Symlink, os.Link} {
		require.NoError(t, os.Remove(p.plan.address.socket))
		require.NoError(t, put(elsewhere, p.plan.address.socket))
		require.ErrorContains(t, p.Probe(t.Context()), "another program listens on the socket of this worker")
		require.False(t, p.accepts(t.Context(), p.plan.address.socket), "nor does it become ready so")
	}

	// One that is no descendant, as in a container of its own, listens there for it.
	require.NoError(t, os.Remove(p.plan.address.socket))
	server, err := net.Listen("unix", p.plan.address.socket)
	require.NoError(t, err)
	defer server.Close()
	require.NoError(t, p.Probe(t.Context()))

	stops(t, p)
	require.NoDirExists(t, p.plan.address.dir)
	require.ErrorContains(t, p.Probe(t.Context()), "the process has ended")
}

func TestTheProcessThatListensOnTheSocketMayHaveEnded(t *testing.T) {
	daemon := strings.Replace(unixEcho, "server.listen()\n",
		"if os.fork() == 0: server.listen(); os._exit(0)\nos.wait()\n", 1)
	require.NoError(t, begin(t, open(t), listens(spec.HealthTCP, daemon)).Probe(t.Context()))
}

func TestALongStateDirPutsTheSocketIntoTheTemporaryDirectory(t *testing.T) {
	s := open(t, func(c *Config) {
		c.StateDir += "/a-folder-with-quite-a-long-name-in-which-no-unix-socket-could-ever-live-because-of-its-limit"
	})
	p := begin(t, s, listens(spec.HealthTCP, unixEcho))
	require.Less(t, len(p.Info().Address), maxSocketPath)
	require.NoError(t, p.Probe(t.Context()))
	dir := p.plan.address.dir
	stops(t, p)
	require.NoDirExists(t, dir)
}

func TestHealthPortIsTheAddressOfAProgramWithAFixedPort(t *testing.T) {
	book := portAllocator{inUse: map[int]bool{}}
	port, err := book.allocate()
	require.NoError(t, err)
	sp := listens(spec.HealthHTTP, web)
	sp.Pool.Command = []string{"sh", "-c", "PORT=" + strconv.Itoa(port) + " exec python3 -c '" + web + "'"}
	sp.Health.Port = port
	p := begin(t, open(t), sp)
	require.Equal(t, "127.0.0.1:"+strconv.Itoa(port), p.Info().Address)
	require.False(t, p.Info().ReadyAt.Before(p.Info().StartedAt))
}

func TestAnUnhealthyProgramIsNotReady(t *testing.T) {
	for path, more := range map[string]string{"/sick": "", "/worse": "; the next probe was interrupted after "} {
		sp := listens(spec.HealthHTTP, web)
		sp.Health.Path, sp.Health.Timeout = path, spec.Duration(waitTimeout)
		startsTooLate(t, open(t), sp, "): http probe of p/0 incarnation ",
			"GET "+path+" answered 503 Service Unavailable"+more)
	}
}

func TestAProgramThatNeverListensFailsItsStart(t *testing.T) {
	sp := runs("sleep", "1000")
	sp.Health.Kind = spec.HealthTCP
	startsTooLate(t, open(t), sp, "listens neither on 127.0.0.1:")
}

func TestPortsAreAllocatedOnce(t *testing.T) {
	book := portAllocator{inUse: map[int]bool{}}
	given := make(map[int]bool)
	for range 200 {
		port, err := book.allocate()
		require.NoError(t, err)
		require.False(t, given[port])
		given[port] = true
	}
	for port := range given {
		book.release(port)
	}
	require.Empty(t, book.inUse)
}

func TestAnRPCProbeIsSkippedAtMaxInflight(t *testing.T) {
	p := begin(t, open(t), python(t))
	require.NoError(t, p.Probe(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	called := background(func() error {
		return errorOf(p.Conn().Call(ctx, wire.Request{Method: "hang", Payload: []byte("null")}))
	})
	eventually(t, func() bool { return p.Conn().InFlight() == 1 }, "the call must be in flight")
	require.ErrorIs(t, p.Probe(t.Context()), ErrBusy)
	cancel()
	require.Error(t, await(t, called))
}

func TestAnRPCProbeOfAStoppedWorkerTimesOut(t *testing.T) {
	p := begin(t, open(t), python(t))
	require.NoError(t, tree.SignalGroup(p.root.PID, syscall.SIGSTOP))
	err := probeAs(p, func(h *spec.Health) { h.Timeout = spec.Duration(100 * time.Millisecond) })
	require.ErrorContains(t, err, "rpc probe of p/0 incarnation 1: no answer within health.timeout (100ms)")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	p.spec.Health.Timeout = spec.Duration(waitTimeout)
	probed := background(func() error { return p.Probe(t.Context()) })
	p.Kill("the test is over")
	require.ErrorIs(t, await(t, probed), ErrUnavailable, "the end of the process says more than a failed check")
	require.True(t, ends(t, p).Killed)
}

func TestAnExecProbeRunsWithTheWorkersDirectoryAndEnvironment(t *testing.T) {
	t.Setenv("TEMPOOL_TEST_PRIVATE", "not for probes")
	sp := runs("sleep", "1000")
	sp.Pool.Dir, sp.Pool.Env = t.TempDir(), map[string]string{"COLOUR": "blue"}
	p := begin(t, open(t), sp)
	for script, want := range map[string]string{
		`exit 0`:                         "",
		`echo nothing works >&2; exit 4`: "sh: exit status 4: nothing works",
		`test "$(pwd)" = ` + sp.Pool.Dir: "",
		`test "$COLOUR$TEMPOOL_WORKER$TEMPOOL_TEST_PRIVATE" = bluep/0`:      "",
		`test "$TEMPOOL_INCARNATION" = "` + p.Info().Cookie + `" || exit 9`: "",
	} {
		err := probeAs(p, func(h *spec.Health) { h.Command = []string{"sh", "-c", script} })
		if want == "" {
			require.NoError(t, err, script)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
	require.ErrorContains(t, probeAs(p, func(h *spec.Health) { h.Command = []string{"no-such-program"} }),
		"is not in PATH")
	require.ErrorContains(t, probeAs(p, func(h *spec.Health) { h.Command = nil }), "needs health.command")
	require.ErrorContains(t, probeAs(p, func(h *spec.Health) { h.Kind = spec.HealthRPC }),
		"protocol none has no rpc probe")
}

func TestAnExecProbeThatTimesOutIsKilledWithItsChildren(t *testing.T) {
	p := begin(t, open(t), runs("sleep", "1000"))
	file := t.TempDir() + "/pid"
	for timeout := 300 * time.Millisecond; ; timeout *= 2 { // until the probe has begun its child in time
		err := probeAs(p, func(h *spec.Health) {
			h.Command = []string{"sh", "-c", "sleep 1000 & echo $! > " + file + "; wait"}
			h.Timeout = spec.Duration(timeout)
		})
		require.ErrorContains(t, err, fmt.Sprintf("no answer within health.timeout (%s)", spec.Duration(timeout)))
		if data, err := os.ReadFile(file); err == nil && len(data) > 0 {
			break
		}
		require.Less(t, timeout, waitTimeout, "the probe does not begin")
	}
	eventually(t, func() bool { return len(cookieHolders(t, p.Info().Cookie)) == 1 }, "only the worker itself may be left")
}

func TestAFailedProbeHidesTheSecretsOfItsPath(t *testing.T) {
	sp := listens(spec.HealthHTTP, web)
	sp.Health.Timeout = spec.Duration(waitTimeout)
	p := begin(t, open(t), sp)
	err := p.probeHTTP(t.Context(), "/sick?token=s3cret")
	require.ErrorContains(t, err, "GET /sick?token=(hidden) answered 503")
	p.Kill("the test ends it")
	<-p.Done()
	err = p.probeHTTP(t.Context(), "/sick?key=s3cret&x=1")
	require.ErrorContains(t, err, "/sick?key=(hidden)&x=1")
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NotContains(t, err.Error(), "s3cret")
	require.NotContains(t, p.probeHTTP(t.Context(), "/%zz?key=s3cret").Error(), "s3cret")
}
