package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/process/logs"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// forks is the spec of a Python program whose processes are forks of a template.
func forks(t *testing.T, program string) spec.Spec {
	t.Helper()
	sp := python(t, "import random", program)
	sp.Start.Fork = true
	return sp
}

// templatesOf returns the living processes of templates.
func templatesOf(s *Supervisor) []*Process {
	return slices.DeleteFunc(s.all(), func(p *Process) bool { return !p.isTemplate() })
}

const forkedProgram = `
loaded = os.getpid()
def files():
    for n in os.listdir("/proc/self/fd"):
        try:
            if int(n) < 100: yield int(n), os.readlink("/proc/self/fd/" + n)  # a test runner may have left its own at the top
        except OSError: pass
@tempool.on_start
def load(): global started; started = os.getpid()
@tempool.after_fork
def after(): global forked; forked = os.getpid()
@tempool.method
def facts():
    print("out", flush=True)
    return {"pid": os.getpid(), "loaded": loaded, "started": started, "forked": forked, "random": random.random(),
        "worker": os.environ["TEMPOOL_WORKER"], "cookie": os.environ["TEMPOOL_INCARNATION"],
        "session": os.getsid(0), "streams": sorted(n for n, to in files() if to.startswith(("socket:", "pipe:")))}
`

type forkFacts struct {
	PID, Loaded, Started, Forked, Session int
	Random                                float64
	Worker, Cookie                        string
	Streams                               []int
}

func TestProcessesAreForksOfOneTemplate(t *testing.T) {
	s, sp := open(t), forks(t, forkedProgram)
	var all []forkFacts
	var processes []*Process
	for i := range 3 {
		p := starts(t, s, launch(fmt.Sprintf("p/%d", i), 1, sp))
		f := ask[forkFacts](t, p, "facts")
		require.Equal(t, p.Info().PID, f.PID)
		require.Equal(t, f.PID, f.Forked)
		require.Equal(t, f.PID, f.Session)
		require.Equal(t, f.Loaded, f.Started)
		require.NotEqual(t, f.PID, f.Loaded)
		require.Equal(t, fmt.Sprintf("p/%d", i), f.Worker)
		require.Equal(t, p.Info().Cookie, f.Cookie)
		require.Equal(t, []int{1, 2, 3, 4}, f.Streams)
		eventually(t, func() bool {
			return slices.ContainsFunc(p.Logs(), func(l logs.Line) bool { return l.Text == "out" })
		}, "the output of a fork is its own log's")
		all, processes = append(all, f), append(processes, p)
	}
	require.Equal(t, all[0].Loaded, all[1].Loaded)
	require.NotEqual(t, all[0].Random, all[1].Random)
	template := templatesOf(s)
	require.Len(t, template, 1)
	require.NotContains(t, s.List(), template[0])

	// The end of the process that waits for the next request is not that of the template.
	eventually(t, func() bool {
		table, err := tree.ReadTable()
		require.NoError(t, err)
		return slices.ContainsFunc(table.Members(template[0].treeKey()), func(e *tree.Entry) bool {
			return e.PID != template[0].root.PID && e.Parent == os.Getpid() && tree.Signal(e.Identity, syscall.SIGKILL) == nil
		})
	}, "no process waits")

	// A crash has its exit code, what it started ends with it, and the next process is a fork of the same template.
	child := ask[int](t, processes[0], "fork_holder")
	_, _ = processes[0].Conn().Call(t.Context(), wire.Request{Method: "leave", Payload: []byte("7")})
	<-processes[0].Done()
	require.Equal(t, 7, processes[0].Exit().Code)
	require.ErrorIs(t, syscall.Kill(child, 0), syscall.ESRCH)
	again := ask[forkFacts](t, starts(t, s, launch("p/0", 2, sp)), "facts")
	require.Equal(t, all[0].Loaded, again.Loaded)

	// The end of a template ends no fork, and the next start has another template.
	require.NoError(t, syscall.Kill(template[0].Info().PID, syscall.SIGKILL))
	<-template[0].Done()
	require.False(t, processes[1].HasEnded())
	require.Equal(t, all[1].PID, ask[forkFacts](t, processes[1], "facts").PID)
	other := ask[forkFacts](t, starts(t, s, launch("p/0", 3, sp)), "facts")
	require.NotEqual(t, all[0].Loaded, other.Loaded)

	// So has the first one after files have changed, or under another spec.
	s.ReplaceTemplates("p")
	require.NotEqual(t, other.Loaded, ask[forkFacts](t, starts(t, s, launch("p/0", 4, sp)), "facts").Loaded)
	sp.Call.CancelGrace++
	starts(t, s, launch("p/0", 5, sp))
	require.Len(t, templatesOf(s), 2)
	s.endUnusedTemplates(time.Now().Add(2 * templateLinger))
	require.Len(t, templatesOf(s), 2) // both specs are in use
	for _, p := range s.List() {
		p.Kill("end")
		<-p.Done()
	}
	s.endUnusedTemplates(time.Now().Add(4 * templateLinger))
	eventually(t, func() bool { return len(templatesOf(s)) == 0 }, "templates of no use must end")
}

func TestAForkIsRegisteredBeforeItsProgramRuns(t *testing.T) {
	s, l := open(t), launch("p/0", 1, forks(t, ""))
	var err error
	l.template, err = s.readyTemplate(t.Context(), &l.Spec)
	require.NoError(t, err)
	p, err := s.newKind(l)
	require.NoError(t, err)
	cmd := p.plan.command(p.plan.program, p.plan.args, p.plan.dir)
	var ends []*os.File
	require.NoError(t, p.pipes.open(l.Spec.Pool.Protocol, cmd, &ends))
	gate, err := l.template.fork(t.Context(), p, cmd)
	require.NoError(t, err)
	records, err := s.state.readRecords(s.logger)
	require.NoError(t, err)
	isOurs := func(r record) bool { return r.Worker == "p/0" && r.Key.Mark == p.plan.mark }
	require.True(t, slices.ContainsFunc(records, isOurs))
	gate.Close() // it exits
	require.NoError(t, errorOf(tree.ReapChild(p.root.PID)))
	p.kind.release()
	for _, file := range ends {
		file.Close()
	}
	p.pipes.close()
}

func TestTheMemoryOfATemplateIsInHugePages(t *testing.T) {
	p := starts(t, open(t), launch("p/0", 1, forks(t, `
loaded = b"1" * (32 << 20)
@tempool.method
def huge():
    with open("/proc/self/smaps_rollup") as lines: return sum(int(l.split()[1]) for l in lines if l.startswith("AnonHugePages"))
`)))
	memory, err := unix.Mmap(-1, 0, 4<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer unix.Munmap(memory)
	for i := range memory {
		memory[i] = 1
	}
	aligned := memory[2<<20-int(uintptr(unsafe.Pointer(&memory[0]))%(2<<20)):]
	able := unix.Madvise(aligned[:2<<20], unix.MADV_COLLAPSE) == nil
	require.Equal(t, able, ask[int](t, p, "huge") >= 28<<10)
}

func TestATemplateThatLoadsForLongIsInUse(t *testing.T) {
	loaded := filepath.Join(t.TempDir(), "loaded")
	s, sp := open(t), forks(t, fmt.Sprintf(`
import time
while not os.path.exists(%q): time.sleep(0.01)`, loaded))
	started := background(func() error { return errorOf(s.Start(t.Context(), launch("p/0", 1, sp))) })
	eventually(t, func() bool { return len(templatesOf(s)) == 1 }, "there is a template")
	s.endUnusedTemplates(time.Now().Add(2 * templateLinger))
	require.NoError(t, os.WriteFile(loaded, nil, 0o600))
	require.NoError(t, await(t, started))
	require.EqualValues(t, 1, s.templateCount, "it was not replaced")
}

func TestATemplateThatHangsIsReplaced(t *testing.T) {
	s, sp := open(t), forks(t, forkedProgram)
	first := starts(t, s, launch("p/0", 1, sp))
	hanging := templatesOf(s)[0]

	// One that is busy is not: a start waits for its turn, as long as it is wanted.
	s.mu.Lock()
	busy := s.templates[0]
	since := busy.usedAt
	s.mu.Unlock()
	<-busy.controlLock
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := background(func() error { return errorOf(s.Start(ctx, launch("p/1", 1, sp))) })
	eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return busy.usedAt.After(since) }, "it wants a fork")
	cancel()
	require.ErrorIs(t, await(t, cancelled), ErrStartFailed)
	busy.controlLock <- struct{}{}
	starts(t, s, launch("p/1", 2, sp))
	require.Len(t, templatesOf(s), 1)

	require.NoError(t, syscall.Kill(-hanging.Info().PID, syscall.SIGSTOP)) // the process that it has forked ahead, too
	second := starts(t, s, launch("p/1", 3, sp))
	require.True(t, hanging.HasEnded())
	require.False(t, first.HasEnded())
	require.NotEqual(t, ask[forkFacts](t, first, "facts").Loaded, ask[forkFacts](t, second, "facts").Loaded)
}

func TestATemplateRefusesThreadsAndNamesThem(t *testing.T) {
	_, err := open(t).Start(t.Context(), launch("p/0", 1, forks(t, `
import threading
threading.Thread(target=threading.Event().wait, name="poller", daemon=True).start()
`)))
	require.ErrorContains(t, err, "this one has: poller; start them in an after_fork hook")
}

func TestForksWithoutNetworkShareNone(t *testing.T) {
	need.NetworkNamespaces(t)
	s, sp := open(t), forks(t, `
import socket
@tempool.method
def listen(): global server; server = socket.create_server(("127.0.0.1", 4999)); return [name for _, name in socket.if_nameindex()]
@tempool.method
def reach():
    try: socket.create_connection(("127.0.0.1", 4999), 5); return True
    except OSError: return False
`)
	sp.Sandbox.Network = spec.NetworkNone
	one := starts(t, s, launch("p/0", 1, sp))
	other := starts(t, s, launch("p/1", 1, sp))
	require.Equal(t, []string{"lo"}, ask[[]string](t, one, "listen"))
	require.True(t, ask[bool](t, one, "reach"))
	require.False(t, ask[bool](t, other, "reach"))
}

// cTemplate is a program in C that speaks the template protocol. Its processes serve JSON-RPC: they answer each request
// with how often their template has counted, and their worker's name.
const cTemplate = `
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fcntl.h>
static char text[65536];
static int fds[16];
static int receive(int control) { // returns the number of descriptors, -1 at the end
	char rights[CMSG_SPACE(sizeof fds)];
	struct iovec iov = { text, sizeof text - 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = rights, .msg_controllen = sizeof rights };
	ssize_t n = recvmsg(control, &m, 0); // the request is one line, which the host sends at once
	if (n <= 0) return -1;
	text[n] = 0;
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
}
int main(void) {
	int control = fcntl(atoi(getenv("TEMPOOL_TEMPLATE")), F_DUPFD_CLOEXEC, 50), loaded = 0;
	while (loaded < 1000) loaded++;
	dprintf(control, "{\"template\": 1}\n");
	for (;;) {
		int status;
		if (fork() == 0) break;
		if (wait(&status) < 0 || status != 0) return 1;
	}
	int n = receive(control);
	if (n < 0) _exit(3);
	if (fork()) _exit(0);
	setsid();
	char *name = strstr(text, "\"TEMPOOL_WORKER\":\"") + 18, byte;
	*strchr(name, '"') = 0;
	dprintf(control, "{\"pid\": %d}\n", getpid());
	for (int i = 0; i < n - 1; i++) { int f = fcntl(fds[i], F_DUPFD, 60); close(fds[i]); fds[i] = f; }
	for (int i = 0; i < n - 1; i++) { dup2(fds[i], i); close(fds[i]); } // files is [0, 1, 2] for JSON-RPC
	if (read(fds[n - 1], &byte, 1) != 1 && !getenv("NO_GATE")) _exit(0);
	close(control);
	char line[4096];
	while (fgets(line, sizeof line, stdin)) {
		char *id = strstr(line, "\"id\":");
		if (id) printf("{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":\"%d %s\"}\n", atoi(id + 5), loaded, name);
		fflush(stdout);
	}
}
`

func TestATemplateInCServesJSONRPC(t *testing.T) {
	need.Program(t, "cc")
	dir := t.TempDir()
	source, program := filepath.Join(dir, "t.c"), filepath.Join(dir, "t")
	require.NoError(t, os.WriteFile(source, []byte(cTemplate), 0o644))
	out, err := exec.Command("cc", "-o", program, source).CombinedOutput()
	require.NoError(t, err, string(out))
	sp := spec.Default()
	sp.Pool.Name, sp.Pool.Command, sp.Pool.Protocol, sp.Start.Fork = "p", []string{program}, spec.ProtocolJSONRPC, true
	s := open(t)
	for _, worker := range []string{"p/0", "p/1"} {
		p := starts(t, s, launch(worker, 1, sp))
		require.Equal(t, "1000 "+worker, ask[string](t, p, "any"))
		require.True(t, p.child)
		stops(t, p)
	}
	require.Len(t, templatesOf(s), 1)

	// One that cannot be adopted ends, even if it takes the end of its gate for the start.
	sp.Pool.Env = map[string]string{"NO_GATE": "1"}
	require.NoError(t, os.Mkdir(s.state.recordName("p/0", 2), 0o700))
	startFails(t, s, launch("p/0", 2, sp), "record incarnation 2 of p/0")
}
