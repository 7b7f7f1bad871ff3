package codemetrics

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakePool is a pool and its gateway in one: workers that lend themselves out one lease at a time, and measure every file as
// 10 bytes, 2 lines and one function whose complexity is the file's number.
type fakePool struct {
	t        *testing.T
	ttl      time.Duration
	endpoint string
	client   *tempool.Client // carries calls to the endpoint, and asks nothing else
	// answer, if set, may answer a call in its own way; false leaves it to the pool.
	answer func(w http.ResponseWriter, r *http.Request, lease string, paths []string) bool
	refuse func() error // of checkouts

	mu       sync.Mutex
	workers  []fakeWorker
	checkins []api.CheckinRequest
	renewals int
	calls    int
}

type fakeWorker struct {
	incarnation, seq int64
	lease            string
}

func newFakePool(t *testing.T, size int) *fakePool {
	f := &fakePool{t: t, ttl: time.Minute, workers: make([]fakeWorker, size)}
	for i := range f.workers {
		f.workers[i].incarnation = 1
	}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.endpoint = server.URL
	var err error
	f.client, err = tempool.Dial(t.Context(), tempool.Options{Gateways: []string{f.endpoint}})
	require.NoError(t, err)
	t.Cleanup(f.client.Close)
	return f
}

// listenOnSocket moves the pool's gateway to a Unix socket.
func (f *fakePool) listenOnSocket() {
	path := filepath.Join(f.t.TempDir(), "g.sock")
	listener, err := net.Listen("unix", path)
	require.NoError(f.t, err)
	server := httptest.NewUnstartedServer(f)
	require.NoError(f.t, server.Listener.Close())
	server.Listener = listener
	server.Start()
	f.t.Cleanup(server.Close)
	f.endpoint = "unix:" + path
}

func (f *fakePool) size(context.Context) (int, error) { return len(f.workers), nil }

func (f *fakePool) tryCheckout(context.Context) (*tempool.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		if err := f.refuse(); err != nil {
			return nil, err
		}
	}
	for slot := range f.workers {
		w := &f.workers[slot]
		if w.lease == "" {
			w.seq++
			w.lease = api.LeaseID("p", slot, w.incarnation, w.seq)
			return f.client.Adopt(api.Lease{ID: w.lease, Worker: api.WorkerName("p", slot), Endpoint: f.endpoint, ExpiresAt: time.Now().Add(f.ttl)}), nil
		}
	}
	return nil, api.ErrNoWorkers
}

func (f *fakePool) renew(_ context.Context, id string) (*tempool.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewals++
	return f.client.Adopt(api.Lease{ID: id, Endpoint: f.endpoint, ExpiresAt: time.Now().Add(f.ttl)}), nil
}

func (f *fakePool) checkin(_ context.Context, r api.CheckinRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checkins = append(f.checkins, r)
	for slot := range f.workers {
		if f.workers[slot].lease == r.LeaseID {
			f.workers[slot].lease = ""
			return nil
		}
	}
	return api.ErrLeaseFenced
}

// kill ends the process under a lease: the next one of that worker has a higher incarnation.
func (f *fakePool) kill(lease string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for slot := range f.workers {
		if w := &f.workers[slot]; w.lease == lease {
			w.incarnation++
			w.lease = ""
		}
	}
}

// out lists the leases that nobody gave back.
func (f *fakePool) out() (leases []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.workers {
		if w.lease != "" {
			leases = append(leases, w.lease)
		}
	}
	return leases
}

func (f *fakePool) holds(lease string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.workers {
		if w.lease == lease {
			return true
		}
	}
	return false
}

func (f *fakePool) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/") // "", v1, leases, ID, call, measure
	var params struct{ Paths []string }
	if len(parts) != 6 || parts[5] != "measure" || json.NewDecoder(r.Body).Decode(&params) != nil {
		refuseCall(w, http.StatusNotFound, "not_found", false)
		return
	}
	f.mu.Lock()
	f.calls++
	f.mu.Unlock()
	if !f.holds(parts[3]) {
		refuseCall(w, http.StatusConflict, api.CodeLeaseFenced, false)
		return
	}
	if f.answer != nil && f.answer(w, r, parts[3], params.Paths) {
		return
	}
	_ = json.NewEncoder(w).Encode(measured(params.Paths))
}

func refuseCall(w http.ResponseWriter, status int, code api.Code, started bool) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "detail": "as the test wants it", "status": status, "started": started})
}

func measured(paths []string) []FileMeasure {
	measures := make([]FileMeasure, len(paths))
	for i, path := range paths {
		var number int
		_, _ = fmt.Sscanf(path, "/f/%d.py", &number)
		measures[i] = FileMeasure{Path: path, Bytes: 10, Lines: 2, Functions: 1, Classes: 1, Complexity: int64(number),
			Worst: []Function{{Name: "f", Line: 1, Complexity: number}}}
		if number == 3 {
			problem := "SyntaxError: this one is Python 2"
			measures[i] = FileMeasure{Path: path, Bytes: 10, Lines: 2, Problem: &problem}
		}
	}
	return measures
}

func numbered(n int) []string {
	paths := make([]string, n)
	for i := range paths {
		paths[i] = fmt.Sprintf("/f/%d.py", i)
	}
	return paths
}

// measureAll runs the job on n files in batches of 7.
func (f *fakePool) measureAll(n int, change func(*Config)) (Summary, error) {
	config := Config{Files: numbered(n), BatchFiles: 7, Patience: 20 * time.Second}
	if change != nil {
		change(&config)
	}
	config, err := config.complete()
	require.NoError(f.t, err)
	return run(f.t.Context(), config, f)
}
