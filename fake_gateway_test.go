package tempool

import (
	"encoding/json"
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

// patience bounds every wait of these tests; only a failing test waits so long.
const patience = 20 * time.Second

const tick = 2 * time.Millisecond

// fakeGateway answers as a gateway does. Calls are answered by answer or else echoed; leases are kept in a book of one worker.
type fakeGateway struct {
	t        *testing.T
	server   *httptest.Server
	endpoint string
	answer   http.HandlerFunc // of calls; nil echoes
	session  http.HandlerFunc // of requests about sessions

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

// clientOf is a client of these gateways alone.
func clientOf(t *testing.T, gateways ...*fakeGateway) *Client {
	var o Options
	for _, g := range gateways {
		o.Gateways = append(o.Gateways, g.endpoint)
	}
	c, err := Dial(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func (f *fakeGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := new(strings.Builder)
	buffer := make([]byte, 1<<10)
	for {
		n, err := r.Body.Read(buffer)
		body.Write(buffer[:n])
		if err != nil {
			break
		}
	}
	f.mu.Lock()
	f.calls, f.bodies = append(f.calls, r), append(f.bodies, body.String())
	f.mu.Unlock()
	switch {
	case strings.Contains(r.URL.Path, "/call/") && f.answer != nil:
		f.answer(w, r)
	case strings.Contains(r.URL.Path, "/call/"):
		w.Header().Set(headerWorker, "p/0")
		w.Header().Set(headerIncarnation, "3")
		_, _ = w.Write([]byte(body.String()))
	case strings.HasPrefix(r.URL.Path, "/v1/sessions"):
		f.session(w, r)
	case strings.Contains(r.URL.Path, "/notify/"):
		w.WriteHeader(http.StatusAccepted)
	default:
		f.control(w, r, body.String())
	}
}

func (f *fakeGateway) control(w http.ResponseWriter, r *http.Request, body string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var asked struct {
		Holder string `json:"holder"`
		TTLMS  int64  `json:"ttl_ms"`
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
		f.seq++
		f.lease = &api.Lease{ID: api.LeaseID("p", 0, 3, f.seq), Worker: "p/0", Incarnation: 3, Seq: f.seq, Holder: asked.Holder, Endpoint: f.endpoint,
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

// last is the newest request and its body.
func (f *fakeGateway) last() (*http.Request, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	require.NotEmpty(f.t, f.calls)
	return f.calls[len(f.calls)-1], f.bodies[len(f.bodies)-1]
}

func refuse(w http.ResponseWriter, code api.Code, started bool) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "detail": "as the test wants it", "started": started, "retry_after_ms": 1500})
}

func refusing(code api.Code, started bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { refuse(w, code, started) }
}
