package ui

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// fakeFleet is a Fleet in memory. It records the actions that it is asked for.
type fakeFleet struct {
	mu       sync.Mutex
	pools    map[string]api.PoolStatus
	hosts    []tempool.Host
	history  []lifecycle.Transition
	lines    []api.LogLine
	events   []api.Event
	follow   chan api.Event
	done     []string
	failure  error // of every question
	silent   bool  // no question is answered
	cut      error // of the gateway that has the logs
	samples  []api.RecentSamples
	queues   []api.RecentQueue
	specs    map[int]api.WorkerSpec  // of workers, by slot
	asked    []tempool.SampleOptions // the questions for samples
	leased   string                  // the worker with a lease that has not been used yet
	mute     bool                    // no worker answers
	flapping string                  // the worker that waits to start again, which its pool has not heard
	queuesOf []string                // the gateways that were asked last for their queues
	since    time.Time               // from when the newest stream of events is
}

func newFakeFleet() *fakeFleet {
	at := time.Now().Add(-time.Minute)
	py := spec.Default()
	py.Pool.Name, py.Pool.Size, py.Pool.Command, py.Pool.Dir, py.Pool.Env = "py", 3, []string{"python3",
		"worker.py"}, "/srv/py", map[string]string{"KEY": "s3cret"}
	f := &fakeFleet{pools: map[string]api.PoolStatus{}, follow: make(chan api.Event)}
	f.pools["py"] = api.PoolStatus{Pool: "py", Size: 3, Ready: 2, SpecVersion: 1, Spec: py, Workers: []api.RosterEntry{
		{Slot: 0, State: lifecycle.Ready, Incarnation: 1, Host: "web-1", Since: at, SpecVersion: 1, PID: 10,
			Endpoint: "http://127.0.0.1:1"},
		{Slot: 1, State: lifecycle.Ready, Incarnation: 1, Host: "web-1", Since: at, SpecVersion: 1, PID: 11,
			Endpoint: "http://127.0.0.1:1"},
		{Slot: 2, State: lifecycle.Failed, Incarnation: 4, Since: at, SpecVersion: 1, Reason: "killed by SIGSEGV <b>",
			Resting: true, ReasonCode: api.ReasonGaveUp},
	}}
	f.pools["js"] = api.PoolStatus{Pool: "js", Size: 1, Ready: 1, SpecVersion: 1,
		Workers: []api.RosterEntry{{State: lifecycle.Ready, Incarnation: 1, Host: "web-2", Since: at, SpecVersion: 1}}}
	f.hosts = []tempool.Host{
		{ID: "web-1", HeardAt: time.Now(), Heartbeat: api.HostHeartbeat{
			Waiting: map[string]int{"py": 14}, MCPSessions: map[string]int{"py": 5},
			Agent: &api.AgentReport{Endpoint: "http://127.0.0.1:1", Capacity: 10, Version: "v1", Draining: true,
				DiskFreeBytes: 5 << 30, DiskTotalBytes: 9 << 30},
			Processes: []api.ProcessReport{{
				Process:  api.Process{Worker: "py/0", Incarnation: 1},
				InFlight: 2, Sample: &api.Sample{MemoryBytes: 50 << 20, At: at, Network: &api.NetworkBytes{ReceivedBytes: 3 << 20}},
				Lease:     &api.Lease{ID: "py.0.1.7", Holder: "ada", Worker: "py/0"},
				MCPClient: &api.MCPClient{Principal: "token <ci>", Since: at},
				Number:    12, Key: &api.KeyUse{Key: "0a1b2c3d", Since: at},
				Assessment: &api.Assessment{Grade: "good", Score: 80, Watch: "Watch closely: memory grows <i>.",
					FailsInMS: 7_322_000},
			}},
		}},
		{ID: "web-2", Heartbeat: api.HostHeartbeat{Waiting: map[string]int{"py": 3, "js": 4},
			MCPSessions: map[string]int{"py": 2}}},
	}
	f.history = []lifecycle.Transition{
		{From: lifecycle.Created, To: lifecycle.Starting, Event: "start", Timestamp: at, Incarnation: 4},
		{From: lifecycle.Starting, To: lifecycle.Failed, Event: "exited", Reason: "killed by SIGSEGV <b>", Timestamp: at,
			Incarnation: 4},
	}
	f.lines = []api.LogLine{{Worker: "py/2", Incarnation: 4, At: at, Stream: "stderr", Text: "<script>alert(1)</script>"}}
	f.events = []api.Event{
		{ID: "a-1", Source: "/pools/py/workers/2", Type: api.EventProcessEnded, Time: at,
			Data: []byte(`{"reason": "killed"}`)},
		{ID: "a-2", Source: "/hosts/web-1", Type: api.EventHostJoined, Time: at, Data: []byte(`{}`)},
	}
	return f
}

// ask waits as a control plane that does not answer, or fails if the test says so.
func (f *fakeFleet) ask(ctx context.Context) error {
	f.mu.Lock()
	silent, failure := f.silent, f.failure
	f.mu.Unlock()
	if silent {
		<-ctx.Done()
		return ctx.Err()
	}
	return failure
}

func (f *fakeFleet) set(change func(*fakeFleet)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeFleet) Hosts(ctx context.Context) ([]tempool.Host, error) { return f.hosts, f.ask(ctx) }

func (f *fakeFleet) HostStatus(ctx context.Context, hostID string) (api.HostStatus, error) {
	return api.HostStatus{Host: hostID, State: api.HostLost}, f.ask(ctx)
}

func (f *fakeFleet) ListPools(ctx context.Context) ([]string, error) {
	return []string{"py", "js"}, f.ask(ctx)
}

func (f *fakeFleet) Pool(name string) Pool { return fakePool{f, name} }

// fakePool is a pool of a fakeFleet.
type fakePool struct {
	*fakeFleet
	name string
}

func (f fakePool) Status(ctx context.Context) (api.PoolStatus, error) {
	if err := f.ask(ctx); err != nil {
		return api.PoolStatus{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	status, found := f.pools[f.name]
	if !found {
		return status, api.Errorf(api.CodePoolNotFound, "pool %s is not running", f.name)
	}
	return status, nil
}

func (f fakePool) State(ctx context.Context, slot int) (api.WorkerState, error) {
	if err := f.ask(ctx); err != nil {
		return api.WorkerState{}, err
	}
	if f.mute {
		<-ctx.Done()
		return api.WorkerState{}, api.Errorf(api.CodeUnavailable, "timed out: %w", ctx.Err())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.pools[f.name].Workers[slot]
	s := api.WorkerState{Worker: api.WorkerName(f.name, slot), State: w.State, Incarnation: w.Incarnation, Host: w.Host,
		Reason: w.Reason, Since: w.Since}
	if slot == 0 {
		s.Lease = &api.Lease{ID: f.name + ".0.1.7", Holder: "ada", Worker: s.Worker}
	}
	if f.leased == s.Worker { // straight from Temporal, so that no host knows
		s.State, s.Lease = lifecycle.Busy, &api.Lease{ID: f.name + ".1.1.2", Holder: "grace", Worker: s.Worker}
	}
	if f.flapping == s.Worker {
		s.State, s.Reason = lifecycle.Pending, "exited with code 3"
	}
	return s, nil
}

func (f fakePool) History(ctx context.Context, _ int) ([]lifecycle.Transition, error) {
	return f.history, f.ask(ctx)
}

func (f fakePool) Logs(ctx context.Context, o tempool.LogOptions, yield func(api.LogLine)) error {
	if err := f.ask(ctx); err != nil {
		return err
	}
	if f.cut != nil {
		o.Unreachable("http://127.0.0.1:2", f.cut)
		return nil
	}
	for _, line := range f.lines {
		yield(line)
	}
	return nil
}

func (f fakePool) RecentSamples(ctx context.Context, o tempool.SampleOptions) (found []api.RecentSamples, err error) {
	if err := f.ask(ctx); err != nil {
		return nil, err
	}
	f.set(func(f *fakeFleet) { f.asked = append(f.asked, o) })
	if f.cut != nil {
		o.Unreachable("http://127.0.0.1:2", f.cut)
	}
	for _, one := range f.samples {
		name, slot, _ := api.ParseWorkerName(one.Worker)
		if name == f.name && (o.Workers == nil || slices.Contains(o.Workers, slot)) {
			found = append(found, one)
		}
	}
	return found, nil
}

func (f fakePool) RecentQueue(ctx context.Context, o tempool.GatewayOptions) ([]api.RecentQueue, error) {
	if err := f.ask(ctx); err != nil {
		return nil, err
	}
	f.set(func(f *fakeFleet) { f.queuesOf = o.Gateways })
	if f.cut != nil {
		o.Unreachable("http://127.0.0.1:2", f.cut)
	}
	return f.queues, nil
}

func (f *fakeFleet) Events(ctx context.Context, o tempool.EventOptions) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		if err := f.ask(ctx); err != nil {
			yield(api.Event{}, err)
			return
		}
		if !o.Follow {
			for _, e := range f.events {
				if !yield(e, nil) {
					return
				}
			}
			return
		}
		f.set(func(f *fakeFleet) { f.since = o.Since })
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-f.follow:
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

func (f fakePool) Sessions(ctx context.Context, _ string, _ int) (*tempool.SessionList, error) {
	return &tempool.SessionList{Sessions: []tempool.SessionSummary{{ID: "user:1", Version: 2}}}, f.ask(ctx)
}

func (f fakePool) Session(id string) Session { return fakeSession{f, id} }

// fakeSession is a session of a fakePool.
type fakeSession struct {
	fakePool
	id string
}

func (f fakeSession) Get(ctx context.Context) (*tempool.SessionState, error) {
	return &tempool.SessionState{ID: f.id, Version: 2}, f.ask(ctx)
}

func (f *fakeFleet) act(ctx context.Context, format string, args ...any) error {
	if err := f.ask(ctx); err != nil {
		return err
	}
	f.set(func(f *fakeFleet) { f.done = append(f.done, fmt.Sprintf(format, args...)) })
	return nil
}

func (f fakeSession) Delete(ctx context.Context) error {
	return f.act(ctx, "delete session %s %s", f.name, f.id)
}

func (f fakeSession) Migrate(ctx context.Context, r api.MigrateSessionRequest) (*tempool.Migration, error) {
	return nil, f.act(ctx, "migrate session %s %s to %s", f.name, f.id, r.To)
}

func (f fakePool) ScaleTo(ctx context.Context, r api.ScaleRequest) (api.ScaleResult, error) {
	return api.ScaleResult{}, f.act(ctx, "scale %s %d", f.name, r.Size)
}

func (f fakePool) WorkerSpec(ctx context.Context, slot int) (api.WorkerSpec, error) {
	if s, known := f.specs[slot]; known {
		return s, f.ask(ctx)
	}
	return api.WorkerSpec{}, api.Errorf(api.CodeUnavailable, "worker %d of pool %s does not answer", slot, f.name)
}

func (f fakePool) HaltRollout(ctx context.Context, c api.Control) (api.Rollout, error) {
	return api.Rollout{}, f.act(ctx, "halt the rollout of %s: %s by %s", f.name, c.Reason, c.By)
}

func (f fakePool) Restart(ctx context.Context, r api.RestartRequest) (api.RestartResult, error) {
	slot := -1
	if r.Worker != nil {
		slot = *r.Worker
	}
	return api.RestartResult{}, f.act(ctx, "restart %s %d: %s by %s", f.name, slot, r.Reason, r.By)
}

func (f *fakeFleet) DrainHost(ctx context.Context, host, reason string) ([]tempool.Moved, error) {
	return nil, f.act(ctx, "drain %s: %s", host, reason)
}

func (f *fakeFleet) UndrainHost(ctx context.Context, host string) error {
	return f.act(ctx, "undrain %s", host)
}

func (f fakePool) Stop(ctx context.Context, reason string) (api.PoolStopResult, error) {
	return api.PoolStopResult{}, f.act(ctx, "stop %s: %s", f.name, reason)
}

func (f fakePool) Signal(ctx context.Context, slot int, signal string, c api.Control) error {
	return f.act(ctx, "%s %s/%d: %s", signal, f.name, slot, c.Reason)
}

func (f *fakeFleet) Checkin(ctx context.Context, r api.CheckinRequest) error {
	return f.act(ctx, "checkin %s %s %s", r.LeaseID, r.Outcome, r.Error)
}

// site is a Dashboard on an HTTP server, for which everybody is a principal unless a browser has signed in.
type site struct {
	t      *testing.T
	server *httptest.Server
	board  *Dashboard
	fleet  *fakeFleet
	client *http.Client
}

var operator = &access.Principal{Name: "ops", Rights: access.All, MaxPriority: access.MaxPriority}

func newSite(t *testing.T, everybody *access.Principal, lookup func(string) *access.Principal) *site {
	t.Helper()
	s := &site{t: t, fleet: newFakeFleet()}
	s.board = New(Config{Fleet: s.fleet, HostID: "web-1", Namespace: "default", Logger: slog.New(slog.DiscardHandler),
		Refuse:   func(w http.ResponseWriter, err error) { http.Error(w, err.Error(), statusOf(err)) },
		Outage:   func() time.Duration { return 0 },
		Endpoint: func() string { return "http://127.0.0.1:1" }, TemporalUI: "http://temporal.test/", Lookup: lookup})
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := s.board.Principal(r)
		if p == nil {
			p = everybody
		}
		s.board.Serve(w, r, p)
	}))
	t.Cleanup(s.server.Close)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	s.client = &http.Client{Jar: jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return s
}

func (s *site) do(r *http.Request) (int, string, http.Header) {
	s.t.Helper()
	answer, err := s.client.Do(r)
	require.NoError(s.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	return answer.StatusCode, string(text), answer.Header
}

func (s *site) get(path string) (int, string, http.Header) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.server.URL+path, nil)
	require.NoError(s.t, err)
	return s.do(r)
}

func (s *site) post(path string, form url.Values) (int, string, http.Header) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.server.URL+path,
		strings.NewReader(form.Encode()))
	require.NoError(s.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return s.do(r)
}

// visit requires the status of a page and returns its text.
func (s *site) visit(want int, path string) string {
	s.t.Helper()
	status, text, _ := s.get(path)
	require.Equal(s.t, want, status, path)
	return text
}

// submit is visit for a form.
func (s *site) submit(want int, path string, form url.Values) string {
	s.t.Helper()
	status, text, _ := s.post(path, form)
	require.Equal(s.t, want, status, path)
	return text
}

// large adds the pool big with so many workers.
func (s *site) large(size int) (workers []api.RosterEntry) {
	for i := range size {
		workers = append(workers, api.RosterEntry{Slot: i, State: lifecycle.Ready, Incarnation: 1,
			Host: "web-" + strconv.Itoa(i%2), Endpoint: "http://10.0.0." + strconv.Itoa(1+i/100)})
	}
	s.fleet.pools["big"] = api.PoolStatus{Pool: "big", Size: size, SpecVersion: 1, Workers: workers}
	return workers
}

// tokenIn is the token of the form on a page.
func tokenIn(page string) string {
	_, after, _ := strings.Cut(page, `name="form_token" value="`)
	token, _, _ := strings.Cut(after, `"`)
	return token
}
