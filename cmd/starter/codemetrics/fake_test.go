package codemetrics

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// waitTimeout bounds each wait; only a failing test waits so long.
const waitTimeout = 3 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakePool is a gateway with a pool of workers, one lease each. They measure every file as 10 bytes, 2 lines and one function whose complexity
// is the file's number.
type fakePool struct {
	t      *testing.T
	client *tempool.Client
	ttl    time.Duration // of leases
	// answer, if set, may answer a call in its own way; false leaves it to the pool.
	answer func(w http.ResponseWriter, r *http.Request, lease string, paths []string) bool
	refuse func() api.Code // of checkouts; "" grants one

	mu       sync.Mutex
	workers  []fakeWorker
	outcomes []string // of checkins
	renewals int
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
	var err error
	f.client, err = tempool.Dial(t.Context(), tempool.Options{Gateways: []string{server.URL}})
	require.NoError(t, err)
	t.Cleanup(f.client.Close)
	return f
}

func (f *fakePool) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/v1/pools/p/leases":
		f.checkout(w)
	case r.Method == http.MethodPut && len(parts) == 4:
		f.renew(w, parts[3])
	case r.Method == http.MethodDelete && len(parts) == 4:
		f.checkin(w, parts[3], r.URL.Query().Get("outcome"))
	case len(parts) == 6 && parts[5] == "measure": // "", v1, leases, ID, call, measure
		f.measure(w, r, parts[3])
	default:
		refuse(w, http.StatusNotFound, "not_found", false)
	}
}

func (f *fakePool) checkout(w http.ResponseWriter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		if code := f.refuse(); code != "" {
			refuse(w, http.StatusServiceUnavailable, code, false)
			return
		}
	}
	for slot := range f.workers {
		if worker := &f.workers[slot]; worker.lease == "" {
			worker.seq++
			worker.lease = api.LeaseID("p", slot, worker.incarnation, worker.seq)
			f.writeLease(w, worker.lease)
			return
		}
	}
	refuse(w, http.StatusServiceUnavailable, api.CodeNoWorkers, false)
}

func (f *fakePool) writeLease(w http.ResponseWriter, id string) {
	now := time.Now()
	_ = json.NewEncoder(w).Encode(api.Lease{ID: id, GrantedAt: now, ExpiresAt: now.Add(f.ttl)})
}

func (f *fakePool) renew(w http.ResponseWriter, id string) {
	if !f.holds(id) {
		refuse(w, http.StatusConflict, api.CodeLeaseFenced, false)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewals++
	f.writeLease(w, id)
}

func (f *fakePool) checkin(w http.ResponseWriter, id, outcome string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outcomes = append(f.outcomes, outcome)
	for slot := range f.workers {
		if f.workers[slot].lease == id {
			f.workers[slot].lease = ""
			_ = json.NewEncoder(w).Encode(api.CheckinResult{State: "ready"})
			return
		}
	}
	refuse(w, http.StatusConflict, api.CodeLeaseFenced, false)
}

func (f *fakePool) measure(w http.ResponseWriter, r *http.Request, lease string) {
	var params struct{ Paths []string }
	switch {
	case json.NewDecoder(r.Body).Decode(&params) != nil:
		refuse(w, http.StatusBadRequest, api.CodeInvalid, false)
	case !f.holds(lease):
		refuse(w, http.StatusConflict, api.CodeLeaseFenced, false)
	case f.answer == nil || !f.answer(w, r, lease, params.Paths):
		_ = json.NewEncoder(w).Encode(measured(params.Paths))
	}
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

// held returns the leases that are not checked in.
func (f *fakePool) held() (leases []string) {
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

func refuse(w http.ResponseWriter, status int, code api.Code, started bool) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "detail": "refused by the test", "status": status, "started": started})
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
	config := Config{Client: f.client, Pool: "p", Files: numbered(n), BatchFiles: 7, StallTimeout: waitTimeout, Concurrency: len(f.workers)}
	if change != nil {
		change(&config)
	}
	return Run(f.t.Context(), config)
}
