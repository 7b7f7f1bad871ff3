package process

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process/logs"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// python is the spec of a worker of the Python SDK with a few methods that misbehave on demand.
func python(t testing.TB, extra ...string) spec.Spec {
	t.Helper()
	sdk, err := filepath.Abs(filepath.Join("..", "sdk", "python"))
	require.NoError(t, err)
	script := `
import os, signal, subprocess, sys, time
import tempool

@tempool.method(raw=True)
def echo(body): return body

@tempool.method
def crash(): os.kill(os.getpid(), signal.SIGSEGV)

@tempool.method
def leave(code): print("leaving", file=sys.stderr, flush=True); os._exit(code)

@tempool.method
def hang(): time.sleep(1000)

@tempool.method
def garble(): os.write(4, b"\xff" * 64); time.sleep(1000)

@tempool.method
def hang_up(): os.close(3); os.close(4); time.sleep(1000)

@tempool.method
def fork_holder(): return subprocess.Popen(["setsid", "sleep", "1000"], close_fds=False).pid

@tempool.method
def burn(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: pass

@tempool.method
def hold(mebibytes):
    global held
    held = b"x" * (mebibytes << 20)
` + strings.Join(extra, "\n") + "\ntempool.run()\n"
	sp := spec.Default()
	sp.Pool.Name, sp.Pool.Command = "p", []string{"python3", "-c", script}
	sp.Pool.StopGrace = spec.Duration(time.Second)
	sp.Pool.Env = map[string]string{"PYTHONPATH": sdk, "PYTHONDONTWRITEBYTECODE": "1"}
	return sp
}

func call(t *testing.T, p *Process, method, params string) string {
	t.Helper()
	response, err := p.Conn().Call(t.Context(), wire.Request{Method: method, Payload: []byte(params)})
	require.NoError(t, err)
	return string(response.Payload)
}

// ask is call for a result of JSON, without params.
func ask[T any](t *testing.T, p *Process, method string) (result T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(call(t, p, method, "")), &result))
	return result
}

func TestAFramesWorkerHasThePoolsBoundOfMessagesAndItsPrintsAreLogs(t *testing.T) {
	sp := python(t, `print("loading the model")`)
	sp.Pool.MaxMessage = 1 << 10
	p := begin(t, open(t), sp)
	require.Equal(t, "hello", call(t, p, "echo", "hello"))
	_, err := p.Conn().Call(t.Context(), wire.Request{Method: "echo", Payload: make([]byte, 2<<10)})
	require.ErrorIs(t, err, wire.ErrTooLarge)
	eventually(t, func() bool { return len(p.Logs()) > 0 }, "no log line")
	require.Equal(t, "stdout", p.Logs()[0].Stream)
	require.Equal(t, "loading the model", p.Logs()[0].Text)
	require.Empty(t, p.Info().Address)
	exit := stops(t, p)
	require.True(t, exit.Interrupted)
}

func TestWarmUpRunsBeforeAWorkerIsReady(t *testing.T) {
	sp := python(t, "warm = []", "@tempool.method", "def warm_up(**given): warm.append(given)", "@tempool.method",
		"def warmed(): return warm")
	sp.Start.Warmup = []spec.Warmup{
		{Method: "warm_up", Params: json.RawMessage(`{"model": "small"}`)}, {Method: "warm_up"},
	}
	p := begin(t, open(t), sp)
	require.JSONEq(t, `[{"model": "small"}, {}]`, call(t, p, "warmed", "null"))
}

func TestAFailedWarmUpFailsTheStart(t *testing.T) {
	sp := python(t, "@tempool.method", "def unwilling(): raise ValueError('no disk')")
	sp.Start.Warmup = []spec.Warmup{{Method: "unwilling"}}
	s := open(t)
	startFails(t, s, launch("p/0", 1, sp), "warm-up unwilling: error: ValueError: no disk")
	p, found := s.Get("p/0", 1)
	require.True(t, found)
	require.True(t, p.Exit().Failed())
}

func TestExitsAreClassified(t *testing.T) {
	for _, c := range []struct {
		name, method, params string
		check                func(t *testing.T, exit Exit)
	}{
		{"a crash", "crash", "null", func(t *testing.T, exit Exit) {
			require.Equal(t, "SIGSEGV", exit.Signal)
			require.Zero(t, exit.Code)
			require.Equal(t, "killed by SIGSEGV", exit.Reason)
		}},
		{"an exit code", "leave", "7", func(t *testing.T, exit Exit) {
			require.Equal(t, 7, exit.Code)
			require.Empty(t, exit.Signal)
			require.Equal(t, "exited with code 7; last output:\nleaving", exit.Reason)
		}},
		{"garbage on the protocol", "garble", "null", func(t *testing.T, exit Exit) {
			require.Contains(t, exit.Error, "connection failed: ")
			require.Equal(t, "SIGKILL", exit.Signal)
		}},
		{"a closed connection", "hang_up", "null", func(t *testing.T, exit Exit) {
			require.Contains(t, exit.Error, "closed its connection but did not exit")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := begin(t, open(t), python(t))
			require.Error(t, errorOf(p.Conn().Call(t.Context(), wire.Request{Method: c.method, Payload: []byte(c.params)})))
			exit := ends(t, p)
			require.True(t, exit.Failed())
			require.False(t, exit.Killed)
			require.False(t, exit.Interrupted)
			c.check(t, exit)
		})
	}
}

func TestACallFailsWhenTheWorkerDiesThoughADescendantHoldsItsSocket(t *testing.T) {
	p := begin(t, open(t), python(t))
	id, found := tree.Identify(ask[int](t, p, "fork_holder"))
	require.True(t, found)
	failed := background(func() error {
		return errorOf(p.Conn().Call(t.Context(), wire.Request{Method: "hang", Payload: []byte("null")}))
	})
	eventually(t, func() bool { return p.Conn().InFlight() == 1 }, "the call must be in flight")
	died := time.Now()
	require.NoError(t, tree.Signal(p.root, syscall.SIGKILL))
	require.Error(t, await(t, failed, "the call hangs"))
	t.Logf("the call failed %s after the KILL", time.Since(died))
	exit := ends(t, p)
	require.False(t, exit.Killed, "somebody else's KILL is a failure, not our doing")
	require.Equal(t, "SIGKILL", exit.Signal)
	require.False(t, lives(t, id))
}

func TestAnAnswerThatAWorkerWroteBeforeItExitedIsRead(t *testing.T) {
	p := begin(t, open(t), python(t, "@tempool.method(raw=True)", "def pieces(_):", "    for _ in range(40): yield b'x'"))
	read := 0
	_, err := wire.Prepare(t.Context(), wire.Request{Method: "pieces"}, nil).Do(p.Conn(),
		func(piece []byte, _ string) error {
			if read++; read == 1 {
				require.NoError(t, tree.Signal(p.root, syscall.SIGTERM)) // it answers its call, and exits
				<-p.exited
				sleep.For(p.Conn().Done(), 200*time.Millisecond) // a slow reader
			}
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, 40, read)
	require.Zero(t, ends(t, p).Code)
}

// byHand says hello on the descriptor that its argument names, and reads until the end of its connection.
const byHand = `
import os, signal, struct, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hello = b'{"protocol": 1, "sdk": "by hand"}'
os.write(int(os.environ[sys.argv[1]]), struct.pack(">IBBHII", 12 + len(hello), 1, 0, 0, 0, 0) + hello)
while os.read(int(os.environ["TEMPOOL_FD"]), 4096): pass
`

func TestAWorkerThatCannotSayHelloFailsAtOnceWithAReason(t *testing.T) {
	s, sp := open(t), spec.Default()
	const hint = "no hello frame arrived on the descriptor TEMPOOL_OUT"
	for i, c := range []struct {
		program string
		reasons []string
		never   string
	}{
		{byHand, []string{hint, "BrokenPipeError"}, "start.timeout"}, // on the socket
		{`print("no worker")`, []string{hint, "exited with code 0"}, "start.timeout"},
		{strings.NewReplacer(`"protocol": 1`, `"protocol": 2`, `sys.argv[1]`, `"TEMPOOL_OUT"`).Replace(byHand),
			[]string{"the worker has protocol version 2"}, hint},
		{`import nothing`, []string{"ModuleNotFoundError"}, hint}, // which says enough
		{`raise RuntimeError("no model on disk")`, []string{"exited with code 1", "RuntimeError: no model on disk"},
			"context canceled"},
		{`import os, time; os.close(int(os.environ["TEMPOOL_OUT"])); time.sleep(1000)`,
			[]string{"the worker closed the connection"}, "start.timeout"},
	} {
		sp.Pool.Name, sp.Pool.Command = "p", []string{"python3", "-c", c.program, EnvFD}
		require.NotContains(t, startFails(t, s, launch("p/0", int64(i+1), sp), c.reasons...).Error(), c.never)
	}
}

// TestAStopEndsAProgramThatExitsWithItsConnection: its launcher, such as npx, handles SIGTERM, and it does not.
func TestAStopEndsAProgramThatExitsWithItsConnection(t *testing.T) {
	sp := spec.Default()
	sp.Pool.Name, sp.Pool.Command = "p", []string{"sh", "-c",
		`trap "exit 0" TERM; python3 -c "$0" TEMPOOL_OUT & wait`, byHand}
	p := begin(t, open(t), sp)
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	exit, err := p.Stop(ctx, time.Hour)
	require.NoError(t, err)
	require.Zero(t, exit.Code)
}

func TestAWorkerMakesHostCalls(t *testing.T) {
	s := open(t, func(c *Config) {
		c.HostCall = func(_ context.Context, call HostCall) ([]byte, error) {
			return fmt.Appendf(nil, `{"id":"s","version":1,"data":{"from":"%s %d %s"}}`, call.Worker, call.Incarnation,
				call.Method), nil
		}
	})
	p := begin(t, s, python(t, "@tempool.method(whole=True)",
		"def ask(_): return tempool.context().session.get(\"from\")"))
	answer := call(t, p, "ask", "null")
	require.Contains(t, answer, "p/0 1 ")
}

// mcp is a JSON-RPC server of one message per line that counts its initialisations.
const mcp = `
import json, os, sys
initialised = notified = 0
for line in sys.stdin:
    message = json.loads(line)
    method = message["method"]
    if method == "initialize": initialised += 1
    if method == "notifications/initialized": notified += 1
    if method == "complain": sys.stderr.write("complaint\n"); sys.stderr.flush()
    if method == "babble": print("this is not JSON"); os.system("echo neither is this; printf 'nor this: '"); sys.stdout.flush()
    if "id" not in message: continue
    result = {"initialised": initialised, "notified": notified}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
print("end of input", file=sys.stderr)
`

func jsonrpc() spec.Spec {
	sp := spec.Default()
	sp.Pool.Name, sp.Pool.Protocol, sp.Pool.Command = "p", spec.ProtocolJSONRPC, []string{"python3", "-c", mcp}
	sp.Start.Warmup = []spec.Warmup{{Method: "initialize"}, {Method: "notifications/initialized", Notification: true}}
	return sp
}

func TestWhatAJSONRPCWorkerPrintsIsItsLog(t *testing.T) {
	p := begin(t, open(t), jsonrpc())
	for range 3 {
		require.JSONEq(t, `{"initialised": 1, "notified": 1}`, call(t, p, "babble", "{}"))
	}
	require.JSONEq(t, `{"initialised": 1, "notified": 1}`, call(t, p, "complain", "{}"))
	printed := func(stream string) (text string) {
		for _, line := range p.Logs() {
			if line.Stream == stream {
				text += line.Text + "\n"
			}
		}
		return text
	}
	eventually(t, func() bool { return printed("stderr") == "complaint\n" }, "no log line")
	for _, text := range []string{"this is not JSON", "neither is this", "nor this:"} {
		require.Equal(t, 3, strings.Count(printed("stdout"), text), printed("stdout"))
	}
	require.NoError(t, p.Probe(t.Context()))
	require.True(t, stops(t, p).Interrupted)
}

func TestReadLinesTruncatesLongLines(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"lines of both systems", "a\nb\r\n", []string{"a", "b"}},
		{"a last line without end", "a\nb", []string{"a", "b"}},
		{"empty lines", "\n\na\n", []string{"", "", "a"}},
		{"bytes that are no text", "a\xffb\n", []string{"a\uFFFDb"}},
		{"a line of just the limit", strings.Repeat("x", maxLineBytes) + "\nb\n",
			[]string{strings.Repeat("x", maxLineBytes), "b"}},
		{"a line beyond it", strings.Repeat("x", maxLineBytes+1) + "\nb\n",
			[]string{strings.Repeat("x", maxLineBytes) + truncatedMark, "b"}},
		{"a line far beyond it", strings.Repeat("x", 5*maxLineBytes) + "\nb",
			[]string{strings.Repeat("x", maxLineBytes) + truncatedMark, "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			require.NoError(t, readLines(strings.NewReader(c.in), func(text string) { got = append(got, text) }))
			require.Equal(t, c.want, got)
		})
	}
}

func FuzzReadLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		lines := 0
		require.NoError(t, readLines(bytes.NewReader(in), func(text string) {
			lines++
			require.LessOrEqual(t, len(text), 3*maxLineBytes+len(truncatedMark))
			require.NotContains(t, text, "\n")
		}))
		require.LessOrEqual(t, lines, bytes.Count(in, []byte("\n"))+1)
	})
}

func TestLogRingKeepsTheNewestLines(t *testing.T) {
	var ring logs.Output
	for i := range logs.MaxLines + 50 {
		ring.Add(logs.Stdout, fmt.Sprint(i))
	}
	lines := ring.Lines()
	require.Len(t, lines, logs.MaxLines)
	require.Equal(t, "50", lines[0].Text)
	require.Equal(t, "240\n241\n242\n243\n244\n245\n246\n247\n248\n249", lastOutput(&ring))
	for range 2 * logs.MaxBytes / maxLineBytes {
		ring.Add(logs.Stdout, strings.Repeat("x", maxLineBytes))
	}
	require.Len(t, ring.Lines(), logs.MaxBytes/maxLineBytes)
	require.LessOrEqual(t, len(lastOutput(&ring)), reasonBytes+len(truncatedMark))
}
