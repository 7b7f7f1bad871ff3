package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/affinity"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/spec"
)

// timeout bounds every wait of these tests; only a failing test waits so long.
const timeout = 2 * time.Minute

const poll = 2 * time.Millisecond

// Rights to use a lease, by names that no lease of a test hides.
var (
	operator       = lease.Operator
	tokenAuthority = lease.TokenAuthority
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// env is a gateway over real processes and a fake control plane.
type env struct {
	t         testing.TB
	gateway   *Gateway
	control   *fakeControl
	processes *process.Supervisor
	spec      spec.Spec
	http      *http.Client
	dir       string
	config    Config
}

type option struct {
	spec   func(*spec.Spec)
	config func(*Config)
}

func withSpec(change func(*spec.Spec)) option { return option{spec: change} }
func withSpecEnv(key, value string) option {
	return withSpec(func(sp *spec.Spec) { sp.Pool.Env[key] = value; sp.Pool.MaxInflight = 2 })
}

func withConfig(change func(*Config)) option { return option{config: change} }

// pythonSpec is the spec of the test's worker program.
func pythonSpec(t testing.TB) spec.Spec {
	script, err := filepath.Abs("testdata/worker.py")
	require.NoError(t, err)
	sdk, err := filepath.Abs("../sdk/python")
	require.NoError(t, err)
	sp := spec.Default()
	sp.Pool.Name, sp.Pool.Command = "p", []string{"python3", script}
	sp.Pool.Env = map[string]string{"PYTHONPATH": sdk, "PYTHONDONTWRITEBYTECODE": "1"}
	sp.Pool.EnvFrom = []string{"PATH", "HOME"}
	sp.Start.Timeout, sp.Queue.Timeout = spec.Duration(timeout), spec.Duration(timeout)
	sp.Health.Timeout, sp.Call.CancelGrace = spec.Duration(timeout), spec.Duration(timeout)
	return sp
}

// parallel is open for a test, which it makes parallel.
func parallel(t *testing.T, workers int, options ...option) *env {
	t.Helper()
	t.Parallel()
	return open(t, workers, options...)
}

// openLeased is parallel with a worker on which "me" has a lease.
func openLeased(t *testing.T) (*env, *api.Lease) {
	t.Helper()
	e := parallel(t, 1)
	return e, e.lease(0, "me")
}

// open returns an env with so many ready workers.
func open(t testing.TB, workers int, options ...option) *env {
	t.Helper()
	e := &env{t: t, dir: t.TempDir(), spec: pythonSpec(t)}
	for _, o := range options {
		if o.spec != nil {
			o.spec(&e.spec)
		}
	}
	logger := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	var err error
	e.processes, err = process.Open(t.Context(),
		process.Config{StateDir: filepath.Join(e.dir, "state"), HostID: "here", Logger: logger})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		require.NoError(t, e.processes.Close(ctx))
	})
	e.control = newFakeControl(e.spec)
	e.config = Config{
		Config: pool.Config{HostID: "here", Control: e.control, Processes: e.processes, Logger: logger,
			CheckEvery: 10 * time.Millisecond, Affinity: affinity.New(nil), Events: events.New("here")},
		Socket: filepath.Join(e.dir, "gw.sock"), Logs: e.processes.Logs(), InWorker: e.processes.Contains,
		Sessions: fakeSessions{embedded.InMemory(sessions.Config{})}, Copies: &fakeCopies{}, Samples: fakeSamples,
		Fleet: &actedFleet{},
	}
	for _, o := range options {
		if o.config != nil {
			o.config(&e.config)
		}
	}
	e.openGateway()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", e.config.Socket)
	}, MaxIdleConnsPerHost: 64}
	e.http = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		http.DefaultClient.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		require.NoError(t, e.gateway.Close(ctx))
	})
	for slot := range workers {
		e.start(slot, 1)
	}
	return e
}

func (e *env) openGateway() {
	e.t.Helper()
	var err error
	e.gateway, err = New(e.config)
	require.NoError(e.t, err)
	require.NoError(e.t, e.gateway.Start())
}

// start starts an incarnation and marks it as ready in the control plane.
func (e *env) start(slot int, incarnation int64) *process.Process {
	e.t.Helper()
	worker := api.WorkerName("p", slot)
	p, err := e.processes.Start(e.t.Context(), process.Launch{Worker: worker, Incarnation: incarnation, Spec: e.spec})
	require.NoError(e.t, err)
	e.control.add(worker, incarnation)
	e.control.with(worker, func(w *fakeWorker) {
		if w.host = e.config.HostID; e.config.Listen != "" {
			w.endpoint = e.gateway.Endpoint()
		}
	})
	e.gateway.Open(p)
	return p
}

// lease checks worker p/slot out without the gateway.
func (e *env) lease(slot int, holder string) *api.Lease {
	e.t.Helper()
	lease, err := e.control.Checkout(e.t.Context(), api.WorkerName("p", slot), tempool.CheckoutOptions{Holder: holder})
	require.NoError(e.t, err)
	return lease
}

type answer struct {
	status  int
	header  http.Header
	body    []byte
	problem Problem
}

// do sends a request and reads the whole answer.
func (e *env) do(method, path string, body any, headers ...string) answer {
	e.t.Helper()
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = bytes.NewReader([]byte(b))
	default:
		data, err := json.Marshal(b)
		require.NoError(e.t, err)
		in = bytes.NewReader(data)
	}
	a := e.send(method, path, in, headers...)
	if a.status >= 400 {
		require.Equal(e.t, "application/problem+json", a.header.Get("Content-Type"), "%s", a.body)
		require.NoError(e.t, json.Unmarshal(a.body, &a.problem))
		require.Equal(e.t, a.status, a.problem.Status)
		require.NotEmpty(e.t, a.problem.Detail)
	}
	return a
}

// ok is do for a request that must succeed.
func (e *env) ok(method, path string, body any, headers ...string) answer {
	e.t.Helper()
	a := e.do(method, path, body, headers...)
	require.Equal(e.t, http.StatusOK, a.status, "%s %s: %s", method, path, a.body)
	return a
}

// send sends a request and reads the whole answer.
func (e *env) send(method, path string, in io.Reader, headers ...string) answer {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return ask(e.t, e.http, requestOf(ctx, e.t, method, "http://gateway"+path, in, headers...))
}

// requestOf makes a request. Each two headers are a name and a value.
func requestOf(ctx context.Context, t testing.TB, method, url string, in io.Reader, headers ...string) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, url, in)
	require.NoError(t, err)
	for ; len(headers) > 0; headers = headers[2:] {
		if headers[0] == "Host" {
			request.Host = headers[1]
		}
		request.Header.Set(headers[0], headers[1])
	}
	return request
}

// ask sends a request and reads the whole answer.
func ask(t testing.TB, client *http.Client, request *http.Request) answer {
	t.Helper()
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	a := answer{status: response.StatusCode, header: response.Header}
	a.body, err = io.ReadAll(response.Body)
	require.NoError(t, err)
	return a
}

// requireProblem asserts the status and code of a problem.
func (a answer) requireProblem(t testing.TB, status int, code api.Code) {
	t.Helper()
	require.Equal(t, code, a.problem.Code, "%s", a.body)
	require.Equal(t, status, a.status)
}

// callers start n goroutines that call the pool without a pause until stop is called, which waits for their last
// answers. The test fails if a call does.
func (e *env) callers(n int) (made *atomic.Int64, stop func()) {
	made = new(atomic.Int64)
	ctx, cancel := context.WithCancel(e.t.Context())
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := e.gateway.CallPool(context.Background(), "p",
					pool.Request{Method: "echo", Body: []byte("x")}); err != nil {
					e.t.Errorf("call %d: %v", made.Load(), err)
					return
				}
				made.Add(1)
			}
		})
	}
	return made, func() {
		cancel()
		all.Wait()
	}
}

// answerLines are the lines of an answer, until it ends or stop is called.
type answerLines struct {
	t      testing.TB
	status int
	header http.Header
	lines  chan string
	stop   func()
}

// lines makes a request, and reads the answer line by line.
func (e *env) lines(method, path, body string, headers ...string) *answerLines {
	e.t.Helper()
	ctx, stop := context.WithCancel(e.t.Context())
	e.t.Cleanup(stop)
	response, err := e.http.Do(requestOf(ctx, e.t, method, "http://gateway"+path, strings.NewReader(body), headers...))
	require.NoError(e.t, err)
	lines := linesOf(e.t, response)
	lines.stop = stop
	return lines
}

func linesOf(t testing.TB, response *http.Response) *answerLines {
	l := &answerLines{t: t, status: response.StatusCode, header: response.Header, lines: make(chan string, 1000)}
	go func() {
		defer close(l.lines)
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, mebibyte)
		for lines.Scan() {
			l.lines <- lines.Text()
		}
	}()
	return l
}

// line returns the next line; none if the answer has ended.
func (l *answerLines) line() (text string, found bool) {
	l.t.Helper()
	select {
	case text, found = <-l.lines:
	case <-time.After(timeout):
		require.Fail(l.t, "no further line")
	}
	return text, found
}

// after returns the next line that begins so, without that; "" if the answer ends before.
func (l *answerLines) after(prefix string) string {
	l.t.Helper()
	for line, more := l.line(); more; line, more = l.line() {
		if text, found := strings.CutPrefix(line, prefix); found {
			return text
		}
	}
	return ""
}

func (e *env) file(name string) string { return filepath.Join(e.dir, name) }

// release ends a held call.
func (e *env) release(path string) {
	e.t.Helper()
	require.NoError(e.t, os.WriteFile(path, nil, 0o600))
}

// awaitHeld waits until a held call has started.
func (e *env) awaitHeld(path string) {
	e.t.Helper()
	require.Eventually(e.t, func() bool { _, err := os.Stat(path); return err == nil }, timeout, poll)
}

// heldCall begins a call of the method hold below a path, and waits until a worker has it. Until release(e.file(name))
// the call does not end.
func (e *env) heldCall(path, name string, headers ...string) <-chan answer {
	e.t.Helper()
	held := background(func() answer { return e.do("POST", path+"/call/hold", quoted(e.file(name)), headers...) })
	e.awaitHeld(e.file(name + ".began"))
	return held
}

// finish ends a held call, which must succeed.
func (e *env) finish(name string, held <-chan answer, message ...any) {
	e.t.Helper()
	e.release(e.file(name))
	require.Equal(e.t, 200, await(e.t, held).status, message...)
}

// background calls run in a goroutine and delivers its result.
func background[T any](run func() T) <-chan T {
	done := make(chan T, 1)
	go func() { done <- run() }()
	return done
}

func await[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(timeout):
		require.FailNow(t, "timed out")
		panic("unreachable")
	}
}

// errorOf is the error of a call whose result does not matter.
func errorOf[T any](_ T, err error) error { return err }

// decode returns the value that JSON text says.
func decode[T any](t testing.TB, text []byte) (value T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(text, &value), "%s", text)
	return value
}

func quoted(text string) string { return strconv.Quote(text) }
