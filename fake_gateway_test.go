package tempool

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// testTimeout bounds every wait; only a failing test waits that long.
	testTimeout = 2 * time.Minute
	pollEvery   = 2 * time.Millisecond
)

// fakeGateway is a gateway with one worker, which echoes calls unless answer is set.
type fakeGateway struct {
	t        *testing.T
	server   *httptest.Server
	endpoint string
	answer   http.HandlerFunc // to calls; nil echoes
	session  http.HandlerFunc // answers session requests
	roster   string           // the endpoint of the one worker in its roster
	granting func()           // called before a lease is granted, if not nil
	silent   bool             // does not answer renewals

	mu       sync.Mutex
	calls    []*http.Request
	bodies   []string
	seq      int64
	lease    *api.Lease
	renewals int
	outcomes []string
	refusal  api.Code // of renewals
}

// newFakeGateway listens on TCP, or on a Unix socket.
func newFakeGateway(t *testing.T, network string) *fakeGateway {
	f := &fakeGateway{t: t}
	f.server = httptest.NewUnstartedServer(f)
	if network == "unix" {
		path := filepath.Join(t.TempDir(), "g.sock")
		listener, err := net.Listen("unix", path)
		require.NoError(t, err)
		require.NoError(t, f.server.Listener.Close())
		f.server.Listener, f.endpoint = listener, "unix:"+path
	}
	f.server.Start()
	t.Cleanup(f.server.Close)
	if f.endpoint == "" {
		f.endpoint = f.server.URL
	}
	return f
}

// clientOf returns a client with these gateways and without Temporal.
func clientOf(t *testing.T, gateways ...*fakeGateway) *Client {
	var o Options
	for _, g := range gateways {
		o.Gateways = append(o.Gateways, g.endpoint)
	}
	return dialed(t, o)
}

// dialed returns a client for the time of a test.
func dialed(t *testing.T, o Options) *Client {
	c, err := Dial(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// serving returns the URL of a server for the time of a test.
func serving(t *testing.T, handler http.HandlerFunc) string {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// chooseFirst makes the balancer of a client with two gateways prefer one of them, by a call in flight on the other.
func chooseFirst(t *testing.T, c *Client, first *fakeGateway) {
	t.Helper()
	_, err := c.fixed.Acquire(t.Context(), map[string]bool{first.endpoint: true})
	require.NoError(t, err)
}

func (f *fakeGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, _ := io.ReadAll(r.Body) // a client may cancel while it sends
	body := string(content)
	f.mu.Lock()
	f.calls, f.bodies = append(f.calls, r), append(f.bodies, body)
	f.mu.Unlock()
	switch {
	case strings.Contains(r.URL.Path, "/call/") && f.answer != nil:
		f.answer(w, r)
	case strings.Contains(r.URL.Path, "/call/"):
		w.Header().Set(api.HeaderWorker, "p/0")
		w.Header().Set(api.HeaderIncarnation, "3")
		_, _ = io.WriteString(w, body)
	case r.URL.Path == "/v1/workers":
		_ = json.NewEncoder(w).Encode([]api.Worker{{Endpoint: f.roster}})
	case strings.HasPrefix(r.URL.Path, "/v1/sessions"), strings.Contains(r.URL.Path, "/bindings"):
		f.session(w, r)
	case r.Method == http.MethodPut && f.silent:
		<-r.Context().Done()
	case strings.Contains(r.URL.Path, "/notify/"):
		w.WriteHeader(http.StatusAccepted)
	default:
		f.control(w, r, body)
	}
}

func (f *fakeGateway) control(w http.ResponseWriter, r *http.Request, body string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var asked struct {
		Holder  string `json:"holder"`
		Session string `json:"session"`
		TTLMS   int64  `json:"ttl_ms"`
	}
	if body != "" && json.Unmarshal([]byte(body), &asked) != nil {
		refuse(w, api.CodeInvalid, false)
		return
	}
	now := time.Now()
	switch {
	case r.Method == http.MethodPost && f.lease != nil:
		refuse(w, api.CodeNoWorkers, false)
	case r.Method == http.MethodPost:
		if f.granting != nil {
			f.granting()
		}
		f.seq++
		f.lease = &api.Lease{ID: api.LeaseID("p", 0, 3, f.seq), Worker: "p/0", Incarnation: 3, Seq: f.seq,
			Holder: asked.Holder, Session: asked.Session, Endpoint: f.endpoint,
			GrantedAt: now, ExpiresAt: now.Add(time.Duration(asked.TTLMS) * time.Millisecond)}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(f.lease)
	case f.refusal != "":
		refuse(w, f.refusal, false)
	case f.lease == nil || !strings.HasSuffix(r.URL.Path, f.lease.ID):
		refuse(w, api.CodeLeaseFenced, false)
	case r.Method == http.MethodPut:
		f.renewals++
		f.lease.ExpiresAt = now.Add(time.Duration(asked.TTLMS) * time.Millisecond)
		_ = json.NewEncoder(w).Encode(f.lease)
	case r.Method == http.MethodDelete:
		f.outcomes = append(f.outcomes, r.URL.Query().Get("outcome"))
		f.lease = nil
		_ = json.NewEncoder(w).Encode(api.CheckinResult{State: "ready"})
	}
}

func (f *fakeGateway) served() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

func (f *fakeGateway) requests() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *fakeGateway) renewed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.renewals
}

// last returns the newest request and its body.
func (f *fakeGateway) last() (*http.Request, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	require.NotEmpty(f.t, f.calls)
	return f.calls[len(f.calls)-1], f.bodies[len(f.bodies)-1]
}

func refuse(w http.ResponseWriter, code api.Code, started bool) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "detail": "refused by the test", "started": started,
		"retry_after_ms": 1500})
}

// answering gives every request this answer.
func answering(status int, format string, args ...any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, format, args...)
	}
}

func refusing(code api.Code, started bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { refuse(w, code, started) }
}
