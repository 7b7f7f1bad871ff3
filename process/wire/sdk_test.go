package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/need"
)

// sdk is how to start a worker program in one language.
type sdk struct {
	name    string
	run     []string
	program string
}

// The two programs offer the same methods.
var sdks = []sdk{
	{"python", []string{"python3", "-c"}, `
import os, time, tempool

@tempool.method(raw=True)
def echo(body): return body

@tempool.method
def square(x): return x * x

@tempool.method
def count(n):
    for i in range(n): yield i

@tempool.method
def fail(): raise tempool.Fatal("broken", code="hardware", data={"unit": 1})

@tempool.method
def wait():
    while not tempool.context().cancelled: time.sleep(0.001)

@tempool.method
def session():
    c = tempool.context()
    c.count("asked")
    return c.session["key"]

@tempool.method
def die(): os._exit(3)

tempool.run(threads=int(os.environ.get("THREADS", "1")))
`},
	{"node", []string{"node", "--input-type=module", "-e"}, `
import { Fatal, context, method, run } from '%s/lib/index.js'
method('echo', { raw: true }, (body) => body)
method('square', ({ x }) => x * x)
method('count', function* (n) { for (let i = 0; i < n; i++) yield i })
method('fail', () => { throw new Fatal('broken', { code: 'hardware', data: { unit: 1 } }) })
method('wait', () => new Promise((resolve) => context().signal.addEventListener('abort', resolve)))
method('session', () => { const c = context(); c.count('asked'); return c.session.get('key') })
method('die', () => process.exit(3))
run()
`},
	{"go", nil, ""}, // sdk/go/internal/testworker
}

// goWorkerDir is a temporary folder; empty unless goWorker was called.
var goWorkerDir string

// goWorker builds the worker of the Go SDK's tests, once.
var goWorker = sync.OnceValues(func() (string, error) {
	var err error
	if goWorkerDir, err = os.MkdirTemp("", "tempool-go-worker"); err != nil {
		return "", err
	}
	file := filepath.Join(goWorkerDir, "testworker")
	out, err := exec.Command("go", "build", "-o", file,
		"github.com/tempool/tempool/sdk/go/internal/testworker").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return file, nil
})

func sdkDir(t testing.TB, name string) string {
	dir, err := filepath.Abs(filepath.Join("..", "..", "sdk", name))
	require.NoError(t, err)
	return dir
}

// socketPair returns this side's end, ready for NewFrames, and the worker's.
func socketPair(t testing.TB) (net.Conn, *os.File) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	ours := os.NewFile(uintptr(fds[0]), "host")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	require.NoError(t, err)
	return conn, os.NewFile(uintptr(fds[1]), "worker")
}

// command runs the program as a worker whose descriptors are the ExtraFiles.
func (s sdk) command(t testing.TB, env ...string) *exec.Cmd {
	program := s.program
	if s.name == "node" {
		program = fmt.Sprintf(program, "file://"+sdkDir(t, "node"))
	}
	if s.name == "go" {
		file, err := goWorker()
		require.NoError(t, err)
		s.run = []string{file}
	}
	cmd := exec.Command(s.run[0], append(s.run[1:], program)...)
	cmd.Env = append(os.Environ(),
		append([]string{"PYTHONPATH=" + sdkDir(t, "python"), "TEMPOOL_FD=3", "TEMPOOL_OUT=4"}, env...)...)
	return cmd
}

// start runs the program as a worker and returns the ready Conn to it and its process. The process is gone when the
// test ends.
func (s sdk) start(t testing.TB, o Options, env ...string) (*Conn, *exec.Cmd) {
	ours, theirs := socketPair(t)
	answers, out, err := os.Pipe()
	require.NoError(t, err)
	cmd := s.command(t, env...)
	cmd.ExtraFiles = []*os.File{theirs, out}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	require.NoError(t, cmd.Start())
	require.NoError(t, theirs.Close())
	require.NoError(t, out.Close())
	c := NewFrames(answers, ours, o)
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		if cmd.ProcessState == nil {
			killer := time.AfterFunc(waitTimeout, func() { cmd.Process.Kill() })
			require.NoError(t, cmd.Wait(), "the end of the stream is a clean exit")
			killer.Stop()
		}
	})
	require.NoError(t, AwaitReady(within(t), c))
	return c, cmd
}

func eachSDK(t *testing.T, test func(t *testing.T, s sdk)) {
	for _, s := range sdks {
		t.Run(s.name, func(t *testing.T) { test(t, s) })
	}
}

func TestEverySDKServesTheWholeProtocol(t *testing.T) {
	eachSDK(t, func(t *testing.T, s sdk) {
		c, _ := s.start(t, Options{MaxInflight: 2,
			HostCall: func(_ context.Context, method string, headers map[string]string, _ []byte) ([]byte, error) {
				if headers["tempool-session"] == "" {
					return nil, &RemoteError{Code: "session_not_found", Message: "no session for " + method}
				}
				return fmt.Appendf(nil, `{"id":%q,"data":{"key":"value of %s"}}`, headers["tempool-session"],
					headers["tempool-session"]), nil
			}})
		ctx := within(t)
		hello, said := HelloOf(c)
		require.True(t, said)
		require.Equal(t, []string{"count", "die", "echo", "fail", "session", "square", "wait"}, hello.Methods)
		require.True(t, strings.HasPrefix(hello.SDK, s.name+"/"))
		require.NoError(t, c.Ping(ctx))

		resp, err := c.Call(ctx, Request{Method: "square", Payload: []byte(`{"x":12}`)})
		require.NoError(t, err)
		require.Equal(t, "144", string(resp.Payload))

		for _, size := range []int{0, 1, 100, 33 << 10, 64 << 10, 3 << 20} {
			body := bytes.Repeat([]byte{7}, size)
			resp, err := c.Call(ctx, Request{Method: "echo", Payload: body})
			require.NoError(t, err)
			require.True(t, bytes.Equal(body, resp.Payload), size)
		}

		var chunks, kinds []string
		_, err = Prepare(ctx, Request{Method: "count", Payload: []byte("[3]")}, nil).Do(c,
			func(chunk []byte, contentType string) error {
				chunks, kinds = append(chunks, string(chunk)), append(kinds, contentType)
				return nil
			})
		require.NoError(t, err)
		require.Equal(t, []string{"0\n", "1\n", "2\n"}, chunks)
		require.Equal(t, []string{"application/x-ndjson", "", ""}, kinds)
		resp, err = c.Call(ctx, Request{Method: "count", Payload: []byte("[3]")})
		require.NoError(t, err)
		require.Equal(t, "0\n1\n2\n", string(resp.Payload))

		var failure *RemoteError
		require.ErrorAs(t, errorOf(c.Call(ctx, Request{Method: "fail"})), &failure)
		require.Equal(t, []any{"hardware", "Fatal", "broken", true},
			[]any{failure.Code, failure.Type, failure.Message, failure.Fatal})
		require.JSONEq(t, `{"unit":1}`, string(failure.Data))
		require.Equal(t, s.name != "go", failure.Traceback != "", "errors of Go have none")
		require.ErrorAs(t, errorOf(c.Call(ctx, Request{Method: "missing"})), &failure)
		require.Equal(t, CodeMethodNotFound, failure.Code)

		resp, err = c.Call(ctx, Request{Method: "session", Headers: map[string]string{"tempool-session": "s1"}})
		require.NoError(t, err)
		require.Equal(t, `"value of s1"`, string(resp.Payload))
		require.Equal(t, "1", resp.Headers["tempool-count-asked"])
		require.ErrorAs(t, errorOf(c.Call(ctx, Request{Method: "session"})), &failure)
		require.Equal(t, "session_not_found", failure.Code)
		require.Equal(t, map[string]int64{"asked": 2}, CountsOf(c))

		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, errorOf(c.Call(short, Request{Method: "wait"})), context.DeadlineExceeded)
		require.Eventually(t, func() bool { return c.InFlight() == 0 }, waitTimeout, time.Millisecond,
			"the handler saw the cancel")
		require.NoError(t, c.Err())
	})
}

func TestEverySDKSaysHowToStartAWorkerIfADescriptorIsMissing(t *testing.T) {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	eachSDK(t, func(t *testing.T, s sdk) {
		for _, missing := range []string{"TEMPOOL_FD=", "TEMPOOL_FD=x", "TEMPOOL_OUT=", "TEMPOOL_OUT=200"} {
			cmd := s.command(t, missing)
			cmd.ExtraFiles = []*os.File{null, null}
			var exit *exec.ExitError
			require.ErrorAs(t, errorOf(cmd.Output()), &exit, missing)
			require.Equal(t, 2, exit.ExitCode(), missing)
			require.Contains(t, string(exit.Stderr), "start the pool with: tempool pool start -f pool.toml", missing)
		}
	})
}

func TestPipelinedAndCancelledCallsOfEverySDKAreMatchedById(t *testing.T) {
	threaded := sdks[0]
	threaded.name = "python with threads"
	for _, tc := range []struct {
		sdk sdk
		env []string
	}{{sdks[0], nil}, {sdks[1], nil}, {sdks[2], nil}, {threaded, []string{"THREADS=4"}}} {
		t.Run(tc.sdk.name, func(t *testing.T) {
			c, _ := tc.sdk.start(t, Options{MaxInflight: 4}, tc.env...)
			var callers sync.WaitGroup
			for caller := range 8 {
				callers.Go(func() {
					for n := range 50 {
						timeout := waitTimeout
						if n%3 == 0 {
							timeout = time.Duration(n) * 20 * time.Microsecond
						}
						ctx, cancel := context.WithTimeout(context.Background(), timeout)
						want := fmt.Sprint(caller, " ", n)
						resp, err := c.Call(ctx, Request{Method: "echo", Payload: []byte(want)})
						cancel()
						late := timeout < waitTimeout && errors.Is(err, context.DeadlineExceeded)
						if !late && (err != nil || string(resp.Payload) != want) {
							t.Errorf("%q: %v", want, err)
							return
						}
					}
				})
			}
			callers.Wait()
			require.Eventually(t, func() bool { return c.InFlight() == 0 }, waitTimeout, time.Millisecond)
			require.NoError(t, c.Err())
		})
	}
}

func TestTheEndOfAWorkerOfEverySDKFailsItsConn(t *testing.T) {
	eachSDK(t, func(t *testing.T, s sdk) {
		c, cmd := s.start(t, Options{})
		_, err := c.Call(within(t), Request{Method: "die"})
		requireStarted(t, true, err)
		require.ErrorIs(t, err, ErrPeerClosed)
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Wait(), &exit)
		require.Equal(t, 3, exit.ExitCode())

		for signal, code := range map[syscall.Signal]int{syscall.SIGTERM: 0, syscall.SIGKILL: -1} {
			c, cmd = s.start(t, Options{})
			require.NoError(t, cmd.Process.Signal(signal))
			await(t, c.Done())
			require.ErrorIs(t, c.Err(), ErrPeerClosed)
			_ = cmd.Wait()
			require.Equal(t, code, cmd.ProcessState.ExitCode(), signal)
		}
	})
}

// A worker that stops may always have another call, and its calls may need the host.
func TestAWorkerOfEverySDKThatStopsServesWhatItHasAndBeginsNothing(t *testing.T) {
	eachSDK(t, func(t *testing.T, s sdk) {
		asked, answer := make(chan string, 1), make(chan struct{})
		c, cmd := s.start(t, Options{MaxInflight: 2,
			HostCall: func(_ context.Context, method string, _ map[string]string, _ []byte) ([]byte, error) {
				asked <- method
				<-answer
				return []byte(`{"id":"s1","data":{"key":"value"}}`), nil
			}}, "THREADS=2")
		letGo := sync.OnceFunc(func() { close(answer) })
		t.Cleanup(letGo)
		ctx := within(t)
		served := callAsync(ctx, c, Request{Method: "session", Headers: map[string]string{"tempool-session": "s1"}})
		await(t, asked)
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		var err error
		for err == nil {
			_, err = c.Call(ctx, Request{Method: "echo"})
		}
		require.ErrorIs(t, err, ErrNotBegun)
		letGo()
		requireAnswer(t, served, `"value"`)
		await(t, c.Done())
		require.NoError(t, cmd.Wait())
	})
}

// debianPython has the library of the asynchronous client.
const debianPython = "/usr/bin/python3"

// The SDKs' own suites are part of this package's tests: the protocol has three implementations and one definition.
func TestTheSDKsOwnSuitesPass(t *testing.T) {
	for _, suite := range []struct {
		dir string
		run []string
	}{
		{"python", []string{"python3", "-W", "error", "-m", "unittest"}},
		{"node", []string{"sh", "-c", "node --test test/*.test.js"}},
		{"python", []string{debianPython, "-W", "error", "-m", "unittest", "tests.aio"}},
	} {
		t.Run(suite.dir, func(t *testing.T) {
			t.Parallel() // they mostly wait
			if suite.run[0] == debianPython {
				need.PythonModule(t, debianPython, "httpx")
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, suite.run[0], suite.run[1:]...)
			cmd.Dir = sdkDir(t, suite.dir)
			cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
			cmd.WaitDelay = waitTimeout
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
		})
	}
}
