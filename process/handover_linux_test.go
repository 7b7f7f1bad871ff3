package process

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process/keeper"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// handOver has another program start a worker on a state directory and hand it over. It returns the worker's process.
func handOver(t *testing.T, dir string, sp spec.Spec) tree.Identity {
	t.Helper()
	return handOverBy(t, keepingAgent{Dir: dir, Spec: sp})
}

func handOverBy(t *testing.T, agent keepingAgent) tree.Identity {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	in, out := startKeepingAgent(t, cmd, agent)
	id := printed(t, out)
	require.NoError(t, in.Close())
	require.NoError(t, tree.WaitChild(cmd))
	require.True(t, lives(t, id), "the worker outlives its agent")
	return id
}

// shortDir is a state directory whose path leaves room for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "keep")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func takeOver(c *Config) { c.TakeOver = true }

func in(dir string) func(*Config) { return func(c *Config) { c.StateDir = dir } }

// keeperOf is the keeper of a state directory.
func keeperOf(t *testing.T, dir string) int {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil || string(data) != keeper.Name+"\x00"+filepath.Join(dir, keeper.SocketName)+"\x00" {
			continue
		}
		var pid int
		require.NoError(t, errorOf(fmt.Sscanf(name, "/proc/%d/", &pid)))
		return pid
	}
	require.Fail(t, "no keeper")
	return 0
}

func keeperGone(t *testing.T, dir, message string) {
	t.Helper()
	eventually(t, func() bool { _, err := os.Stat(filepath.Join(dir, keeper.SocketName)); return os.IsNotExist(err) },
		message)
}

func TestTheNextSupervisorContinuesWithAProcessThatWasHandedOver(t *testing.T) {
	for name, c := range map[string]struct {
		spec func(*testing.T) spec.Spec
		use  func(*testing.T, *Process)
	}{
		"frames": {
			func(t *testing.T) spec.Spec { return python(t, `print("loaded")`) },
			func(t *testing.T, p *Process) {
				require.Equal(t, "again", call(t, p, "echo", "again"))
				require.NoError(t, p.Conn().Ping(t.Context()))
			},
		},
		"jsonrpc": {
			func(*testing.T) spec.Spec {
				sp := runs("python3", "-u", "-c", `
import json, sys
print("loaded", file=sys.stderr)
seen = set()
for line in sys.stdin:
    m = json.loads(line)
    assert m["id"] not in seen, "an id is used twice"
    seen.add(m["id"])
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {"seen": len(seen)}}))`)
				sp.Pool.Protocol, sp.Pool.Framing, sp.Health.Kind = spec.ProtocolJSONRPC, "line", spec.HealthRPC
				sp.Start.Warmup = []spec.Warmup{{Method: "first"}}
				return sp
			},
			func(t *testing.T, p *Process) { require.Contains(t, call(t, p, "next", "{}"), "seen") },
		},
		"none": {
			func(t *testing.T) spec.Spec {
				return sh("echo loaded; trap 'exit 0' TERM; while :; do sleep 0.05; echo working; done")
			},
			func(t *testing.T, p *Process) {
				require.NoError(t, p.Probe(t.Context()))
				before := len(p.Logs())
				eventually(t, func() bool { return len(p.Logs()) > before }, "its output continues")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			id := handOver(t, dir, c.spec(t))
			s := open(t, in(dir), takeOver)
			kept := s.TakenOver()
			require.Len(t, kept, 1)
			p := kept[0]
			require.JSONEq(t, `"of p/0"`, string(p.Note))
			require.Equal(t, id.PID, p.Info().PID)
			require.Equal(t, int64(1), s.Newest("p/0"))
			require.False(t, p.Info().ReadyAt.IsZero())
			eventually(t, func() bool { return len(p.Logs()) > 0 }, "its output is read")
			require.Contains(t, p.Logs()[0].Text, "loaded")
			c.use(t, p.Process)
			keeperGone(t, dir, "the keeper is gone")
			require.True(t, lives(t, id))
			require.NoError(t, errorOf(p.FreshSample(t.Context())))

			_, err := s.HandOver(t.Context(), noted) // and a second time
			require.NoError(t, err)
			require.True(t, p.HandedOver())
			closes(t, s)
			require.True(t, lives(t, id))
			s = open(t, in(dir), takeOver)
			require.Len(t, s.TakenOver(), 1)
			p = s.TakenOver()[0]
			c.use(t, p.Process)
			exit := stops(t, p.Process)
			require.True(t, exit.Interrupted, exit.Reason)
			gone(t, id, "the worker")
		})
	}
}

func TestACrashAfterATakeOverIsNoticed(t *testing.T) {
	dir := shortDir(t)
	id := handOver(t, dir, python(t))
	s := open(t, in(dir), takeOver)
	p := s.TakenOver()[0]
	require.NoError(t, syscall.Kill(id.PID, syscall.SIGKILL))
	exit := ends(t, p.Process)
	require.True(t, exit.Failed(), exit.Reason)
	require.Empty(t, cookieHolders(t, p.Info().Cookie))
}

type onWrite func(text string)

func (w onWrite) Write(p []byte) (int, error) { w(string(p)); return len(p), nil }

// The end of a process that was taken over makes the agent kill the escaped ones, which may be before the others are.
func TestNoProcessIsTakenForAnEscapedOneBeforeItIsTakenOver(t *testing.T) {
	require.NoError(t, tree.BecomeSubreaper()) // of the first agent's processes
	dir := shortDir(t)
	handOverBy(t, keepingAgent{Dir: dir, Spec: sh("sleep 1000"), Two: true})
	logger := slog.New(slog.NewTextHandler(onWrite(func(text string) {
		if strings.Contains(text, "took over a worker process") {
			assert.NoError(t, errorOf(tree.KillEscaped()))
		}
	}), nil))
	kept := open(t, in(dir), takeOver, func(c *Config) { c.Logger = logger }).TakenOver()
	require.Len(t, kept, 2)
	for _, p := range kept {
		require.True(t, lives(t, p.root), p.Worker())
	}
}

// asks is a worker that asks the keeper for the kept processes: itself, by a child that has ended, and by an orphan in
// a session of its own without its worker's environment.
const asks = `
import os, socket, sys, time
asks, path, answers = sys.argv[1:4]
while not os.path.exists(path): time.sleep(0.01)
s = socket.socket(socket.AF_UNIX)
def answer(name): open(answers + "/" + name, "w").write("got %d bytes" % len(s.recv(1)))
s.connect(path)
if len(sys.argv) > 4:
    answer("orphan")
    time.sleep(1000)
answer("worker")
s = socket.socket(socket.AF_UNIX)
if os.fork() == 0:
    s.connect(path)
    os._exit(0)
os.wait()
answer("child")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/proc/self/exe", ["python3", "-c", asks, asks, path, answers, "orphan"], {})
    os._exit(0)
os.wait()
time.sleep(1000)`

func TestNothingIsLeftOfProcessesThatNobodyTakesOver(t *testing.T) {
	for name, happens := range map[string]func(t *testing.T, dir string, id tree.Identity){
		"the keeper is killed": func(t *testing.T, dir string, id tree.Identity) {
			require.Empty(t, open(t, takeOver).TakenOver(), "it has another state directory")
			require.True(t, lives(t, id), "the keeper still waits")
			require.NoError(t, syscall.Kill(keeperOf(t, dir), syscall.SIGKILL))
			gone(t, id, "the worker")
			require.Empty(t, open(t, in(dir), takeOver).TakenOver())
		},
		"the next supervisor is killed": func(t *testing.T, dir string, id tree.Identity) {
			agent := exec.Command(os.Args[0])
			in, _ := startKeepingAgent(t, agent, keepingAgent{Dir: dir, Spec: sh("sleep 1000")})
			defer in.Close()
			keeperGone(t, dir, "it has taken over")
			require.True(t, lives(t, id))
			require.NoError(t, agent.Process.Kill())
			require.Error(t, tree.WaitChild(agent))
		},
		"the next supervisor does not take over": func(t *testing.T, dir string, _ tree.Identity) {
			require.Empty(t, open(t, in(dir)).TakenOver())
		},
		"the next supervisor fails in the middle": func(t *testing.T, dir string, _ tree.Identity) {
			taken, err := keeper.Take(t.Context(), filepath.Join(dir, keeper.SocketName))
			require.NoError(t, err)
			require.Len(t, taken.Items, 1)
			taken.Abort()
			require.ErrorIs(t, taken.Done(), net.ErrClosed, "too late to dismiss the keeper")
			require.NotEmpty(t, taken.Items[0].Files)
			for _, file := range taken.Items[0].Files {
				require.ErrorIs(t, file.Close(), os.ErrClosed)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			id := handOver(t, dir, sh("sleep 1000"))
			happens(t, dir, id)
			gone(t, id, "the worker")
		})
	}
	t.Run("the worker ends before there is a next supervisor", func(t *testing.T) {
		require.NoError(t, tree.BecomeSubreaper())
		dir := shortDir(t)
		id := handOver(t, dir, sh("sleep 1000"))
		require.NoError(t, tree.Signal(id, syscall.SIGKILL))
		eventually(t, func() bool { tree.ReapOrphan(id); return !id.Exists() }, "the worker is reaped")
		s := open(t, in(dir), takeOver)
		require.Empty(t, s.TakenOver())
		require.Empty(t, s.ports.inUse)
		sockets, err := os.ReadDir(filepath.Join(dir, socketsName))
		require.NoError(t, err)
		require.Empty(t, sockets)
	})
	t.Run("there is no next supervisor", func(t *testing.T) {
		dir := shortDir(t)
		s, err := Open(t.Context(), Config{StateDir: dir, HostID: "test",
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), keepFor: 2 * time.Second})
		require.NoError(t, err)
		p := begin(t, s, sh("setsid sleep 1000 & sleep 1000"))
		kept, err := s.HandOver(t.Context(), noted)
		require.NoError(t, err)
		require.Equal(t, []*Process{p}, kept)
		closes(t, s)
		eventually(t, func() bool { return len(cookieHolders(t, p.Info().Cookie)) == 0 }, "a process is left over")
		keeperGone(t, dir, "the keeper is left over")
	})
	t.Run("a worker asks", func(t *testing.T) {
		dir := shortDir(t)
		socket := filepath.Join(dir, keeper.SocketName)
		id := handOver(t, dir, runs("python3", "-c", asks, asks, socket, dir))
		for _, name := range []string{"worker", "child", "orphan"} {
			file := filepath.Join(dir, name)
			eventually(t, func() bool { data, _ := os.ReadFile(file); return len(data) > 0 }, "no answer: %s", name)
			require.Equal(t, "got 0 bytes", textOf(t, file), name)
		}
		require.Len(t, open(t, in(dir), takeOver).TakenOver(), 1, "a worker does not spoil the take-over")
		require.True(t, lives(t, id))
	})
}

// The next supervisor must know whether each tree is frozen; otherwise a frozen tree would never run again.
func TestATreeThatIsHandedOverIsNeitherFrozenNorThawedAnyMore(t *testing.T) {
	for name, c := range map[string]struct {
		frozen bool
		order  func(*testing.T, *Process)
	}{
		"frozen late": {false, func(t *testing.T, p *Process) { assert.ErrorIs(t, p.Freeze(2), ErrUnavailable) }},
		"thawed late": {true, func(_ *testing.T, p *Process) { p.Thaw(2) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			s := open(t, in(dir))
			first := begin(t, s, runs("sleep", "1000")) // a shell that waits for its child to execute a program never stops
			if c.frozen {
				require.NoError(t, first.Freeze(1))
			}
			_, err := s.HandOver(t.Context(), func(p *Process) json.RawMessage { c.order(t, p); return noted(p) })
			require.NoError(t, err)
			closes(t, s)
			next := open(t, in(dir), takeOver)
			require.Len(t, next.TakenOver(), 1)
			p := next.TakenOver()[0]
			require.Equal(t, c.frozen, p.Frozen())
			require.Equal(t, c.frozen, stopped(t, first.root))
			p.Thaw(3)
			require.False(t, stopped(t, first.root))
		})
	}
}

// overdue is a context whose deadline is over as soon as it is done.
type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

// The time that a worker uses up is not taken from the keeper of the others.
func TestAWorkerThatDoesNotBecomeQuietCostsNoOtherItsHandOver(t *testing.T) {
	dir := shortDir(t)
	s := open(t, in(dir))
	quiet := begin(t, s, python(t))
	busy := starts(t, s, launch("p/1", 1, python(t)))
	inCall := background(func() error {
		return errorOf(busy.Conn().Call(context.Background(), wire.Request{Method: "hang", Payload: []byte("[]")}))
	})
	eventually(t, func() bool { return busy.Conn().InFlight() > 0 }, "the call is in flight")
	ctx, expire := context.WithCancel(t.Context())
	defer expire()
	kept, err := s.HandOver(overdue{ctx}, func(p *Process) json.RawMessage { expire(); return noted(p) })
	require.NoError(t, err)
	require.Equal(t, []*Process{quiet}, kept)
	require.Contains(t, ends(t, busy).Reason, "could not be handed over")
	require.Error(t, await(t, inCall))
	closes(t, s)
	taken := open(t, in(dir), takeOver).TakenOver()
	require.Len(t, taken, 1)
	require.Equal(t, "again", call(t, taken[0].Process, "echo", "again"))
}
