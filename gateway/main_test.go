package gateway

import (
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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/dispatch"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

// patience bounds every wait of these tests; only a failing test waits so long.
const patience = 30 * time.Second

const tick = 2 * time.Millisecond

func TestMain(m *testing.M) {
	process.RunReaperIfAsked()
	goleak.VerifyTestMain(m)
}

// world is a gateway over real processes and a lease book.
type world struct {
	t         testing.TB
	gateway   *Gateway
	book      *book
	processes *process.Supervisor
	spec      spec.Spec
	http      *http.Client
	dir       string
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
	sp.Start.Timeout = spec.Duration(patience)
	return sp
}

// open makes a world with so many workers.
func open(t testing.TB, workers int, options ...option) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), spec: pythonSpec(t)}
	for _, o := range options {
		if o.spec != nil {
			o.spec(&w.spec)
		}
	}
	logger := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	var err error
	w.processes, err = process.Open(t.Context(), process.Config{StateDir: filepath.Join(w.dir, "state"), HostID: "here", Logger: logger})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, w.processes.Close(ctx))
	})
	w.book = newBook("here", w.spec)
	config := Config{
		Config: dispatch.Config{HostID: "here", Control: w.book, Processes: w.processes, Logger: logger, CheckEvery: 10 * time.Millisecond},
		Socket: filepath.Join(w.dir, "gw.sock"),
	}
	for _, o := range options {
		if o.config != nil {
			o.config(&config)
		}
	}
	w.gateway, err = New(config)
	require.NoError(t, err)
	w.book.recall = func(worker string, incarnation int64, lease string) api.RecallResult {
		return w.gateway.Recall(context.Background(), worker, incarnation, lease)
	}
	require.NoError(t, w.gateway.Start())
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", config.Socket)
	}, MaxIdleConnsPerHost: 64}
	w.http = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, w.gateway.Close(ctx))
	})
	for slot := range workers {
		w.start(slot, 1)
	}
	return w
}

// start runs an incarnation and has the book know it as ready.
func (w *world) start(slot int, incarnation int64) *process.Process {
	w.t.Helper()
	worker := api.WorkerName("p", slot)
	p, err := w.processes.Start(w.t.Context(), process.Launch{Worker: worker, Incarnation: incarnation, Spec: w.spec})
	require.NoError(w.t, err)
	w.book.add(worker, incarnation)
	return p
}

// lease checks worker p/slot out to somebody, past the gateway.
func (w *world) lease(slot int, holder string) *api.Lease {
	w.t.Helper()
	lease, err := w.book.Checkout(w.t.Context(), api.WorkerName("p", slot), tempool.CheckoutOptions{Holder: holder})
	require.NoError(w.t, err)
	return lease
}

type answer struct {
	status  int
	header  http.Header
	body    []byte
	problem Problem
}

// do sends a request and reads all of the answer.
func (w *world) do(method, path string, body any, headers ...string) answer {
	w.t.Helper()
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = bytes.NewReader([]byte(b))
	default:
		data, err := json.Marshal(b)
		require.NoError(w.t, err)
		in = bytes.NewReader(data)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://gateway"+path, in)
	require.NoError(w.t, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := w.http.Do(request)
	require.NoError(w.t, err)
	defer response.Body.Close()
	a := answer{status: response.StatusCode, header: response.Header}
	a.body, err = io.ReadAll(response.Body)
	require.NoError(w.t, err)
	if a.status >= 400 {
		require.Equal(w.t, "application/problem+json", a.header.Get("Content-Type"), "%s", a.body)
		require.NoError(w.t, json.Unmarshal(a.body, &a.problem))
		require.Equal(w.t, a.status, a.problem.Status)
		require.NotEmpty(w.t, a.problem.Detail)
	}
	return a
}

// refusedWith asserts a problem.
func (a answer) refusedWith(t testing.TB, status int, code api.Code) {
	t.Helper()
	require.Equal(t, code, a.problem.Code, "%s", a.body)
	require.Equal(t, status, a.status)
}

// callers have so many call the pool without a pause until enough, which waits for their last answers. No call may fail.
func (w *world) callers(n int) (made *atomic.Int64, enough func()) {
	made = new(atomic.Int64)
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := w.gateway.CallPool(context.Background(), "p", dispatch.Request{Method: "echo", Body: []byte("x")}); err != nil {
					w.t.Errorf("call %d: %v", made.Load(), err)
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

func (w *world) file(name string) string { return filepath.Join(w.dir, name) }

// touch lets a held call go.
func (w *world) touch(path string) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(path, nil, 0o600))
}

// awaitFile waits until a held call has begun.
func (w *world) awaitFile(path string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { _, err := os.Stat(path); return err == nil }, patience, tick)
}

// background runs do and delivers its answer.
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
	case <-time.After(patience):
		require.FailNow(t, "it never came")
		panic("unreachable")
	}
}

func quoted(text string) string { return strconv.Quote(text) }
