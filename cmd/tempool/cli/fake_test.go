package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// fakeControlPlane is a control plane whose pools follow a script. It records requests that change something, in order.
type fakeControlPlane struct {
	in        string // the standard input
	mu        sync.Mutex
	missing   []string
	listErr   error // of MissingSearchAttributes
	agents    int
	pools     map[string]*fakePool
	startErr  error
	dialErr   error
	requests  []string
	replayed  []lifecycle.Transition
	onRequest func() // called for each recorded request, if set
	options   tempool.Options
	events    []fakeEvent
	closed    int
	server    tempool.Server
	serverErr error
	hosts     []tempool.Host
	heartbeat func() // before each list of hosts; nil for none
	hostErr   error  // of HostStatus
	draining  string // of a host with an agent
	links     map[string]tempool.DashboardLink
	browsed   []string
	browseErr error
	checks    map[string]tempool.GatewayCheck
}

// fakeEvent is an event, or the failure to read an agent's.
type fakeEvent struct {
	event api.Event
	err   error
}

// fakePool is one pool of a fakeControlPlane. Each call takes the next item of a script; the last item stays.
type fakePool struct {
	pool         // the client's, for what follows no script: its Temporal is a fakeTemporal
	controlPlane *fakeControlPlane
	name         string

	statuses     []api.PoolStatus
	statusErrors []error // returned by the first calls of Status
	states       map[int][]api.WorkerState
	view         api.PoolWorkers
	history      []lifecycle.Transition
	changed      bool
	err          error // of every change, checkout and call
	signalErrors map[int]error
	neverEnds    bool // Wait does not return before its context ends
	lease        *tempool.Lease
	gateway      string // its endpoint; "" for none
	options      tempool.CheckoutOptions
	restart      api.RestartRequest
	applied      api.ApplyRequest
	control      api.Control
	migration    *fakeMigration
	logs         []api.LogLine
	logOptions   tempool.LogOptions
}

func newFakeControlPlane(pools ...*fakePool) *fakeControlPlane {
	f := &fakeControlPlane{agents: 1, pools: map[string]*fakePool{}}
	for _, p := range pools {
		p.controlPlane, p.pool = f, tempool.NewClient(fakeTemporal{fakePool: p}, "test").Pool(p.name)
		f.pools[p.name] = p
	}
	return f
}

func (f *fakeControlPlane) record(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, what)
	if f.onRequest != nil {
		f.onRequest()
	}
}

func (f *fakeControlPlane) Events(_ context.Context, o tempool.EventOptions) iter.Seq2[api.Event, error] {
	f.record(fmt.Sprintf("events %+v", o))
	return func(yield func(api.Event, error) bool) {
		for _, one := range f.events {
			if !yield(one.event, one.err) {
				return
			}
		}
	}
}

func (f *fakeControlPlane) Namespace() string { return "test" }

func (f *fakeControlPlane) MissingSearchAttributes(context.Context) ([]string, error) {
	return f.missing, f.listErr
}

func (f *fakeControlPlane) Setup(context.Context) ([]string, error) { return f.missing, nil }

func (f *fakeControlPlane) Agents(context.Context) (int, error) { return f.agents, nil }

func (f *fakeControlPlane) Server(context.Context) (tempool.Server, error) {
	return f.server, f.serverErr
}

func (f *fakeControlPlane) Hosts(context.Context) ([]tempool.Host, error) {
	if f.heartbeat != nil {
		f.heartbeat()
	}
	return f.hosts, nil
}

func (f *fakeControlPlane) HostStatus(_ context.Context, hostID string) (api.HostStatus, error) {
	status := api.HostStatus{Host: hostID, State: api.HostLost, Since: noon, Machine: "PID 1 on " + hostID}
	for _, h := range f.hosts {
		if r := h.Heartbeat.Agent; h.ID == hostID && r != nil {
			status.State, status.Epoch, status.JoinedAt = api.HostUp, r.Epoch, noon.Add(-2*time.Hour)
			status.Labels, status.Capacity, status.Draining = r.Labels, r.Capacity, f.draining
		}
	}
	return status, f.hostErr
}

func (f *fakeControlPlane) DrainHost(_ context.Context, hostID, reason string) ([]tempool.Moved, error) {
	f.record("drain host " + hostID + ": " + reason)
	if hostID == "nosuch" {
		return nil, api.Errorf(api.CodeInvalid, "no host nosuch")
	}
	return []tempool.Moved{{Pool: "p", Workers: []int{0}}}, nil
}

func (f *fakeControlPlane) UndrainHost(_ context.Context, hostID string) error {
	f.record("undrain host " + hostID)
	return nil
}

func (f *fakeControlPlane) DashboardLink(_ context.Context, endpoint string) (tempool.DashboardLink, error) {
	f.requests = append(f.requests, "link "+endpoint)
	if link, found := f.links[endpoint]; found {
		return link, nil
	}
	return tempool.DashboardLink{}, api.Errorf(api.CodeForbidden, "nobody does not have the right read")
}

func (f *fakeControlPlane) CheckGateway(_ context.Context, endpoint string) tempool.GatewayCheck {
	if check, found := f.checks[endpoint]; found {
		return check
	}
	return tempool.GatewayCheck{Err: api.Errorf(api.CodeUnavailable, "connection refused")}
}

func (f *fakeControlPlane) StartPool(_ context.Context, start api.PoolStart) error {
	f.record("start " + start.Pool)
	return f.startErr
}

func (f *fakeControlPlane) ListPools(context.Context) ([]string, error) {
	var names []string
	for name := range f.pools {
		names = append(names, name)
	}
	return names, nil
}

func (f *fakeControlPlane) Checkin(_ context.Context, r api.CheckinRequest) error {
	f.record("signal checkin " + r.LeaseID)
	return nil
}

func (f *fakeControlPlane) CheckinNow(_ context.Context, r api.CheckinRequest) (api.CheckinResult, error) {
	f.record("checkin " + r.LeaseID + " " + string(r.Outcome) + " " + r.Error)
	return api.CheckinResult{State: lifecycle.Degraded}, nil
}

func (f *fakeControlPlane) Pool(name string) pool {
	if p, found := f.pools[name]; found {
		return p
	}
	return &fakePool{controlPlane: f, name: name, err: api.Errorf(api.CodePoolNotFound, "no pool %s is running", name)}
}

func (f *fakeControlPlane) ReplayHistory(_ context.Context, pool string, _ int) ([]lifecycle.Transition, error) {
	return f.replayed, nil
}

func (f *fakeControlPlane) Close() { f.closed++ }

func (p *fakePool) Name() string { return p.name }

func (p *fakePool) ScaleTo(_ context.Context, r api.ScaleRequest) (api.ScaleResult, error) {
	if r.Bounds != nil && r.Bounds.Max > 0 {
		return api.ScaleResult{From: 4, To: 4, Bounds: r.Bounds}, p.err
	}
	return api.ScaleResult{From: 1, To: r.Size}, p.err
}

func (p *fakePool) ApplySpec(_ context.Context, r api.ApplyRequest) (api.ApplyResult, error) {
	p.controlPlane.record("apply " + r.Spec.Pool.Name)
	p.applied = r
	return api.ApplyResult{SpecVersion: 2, Changed: p.changed}, p.err
}

func (p *fakePool) Restart(_ context.Context, r api.RestartRequest) (api.RestartResult, error) {
	p.controlPlane.record("restart " + p.name)
	p.restart = r
	if r.Worker != nil {
		return api.RestartResult{Workers: []int{*r.Worker}}, p.err
	}
	return api.RestartResult{Workers: []int{0, 1}}, p.err
}

func (p *fakePool) HaltRollout(_ context.Context, c api.Control) (api.Rollout, error) {
	p.controlPlane.record("halt the rollout of " + p.name + ": " + c.Reason)
	return api.Rollout{Reason: "new model", Done: 1, Waiting: []int{2}, Halted: "halted: " + c.Reason}, p.err
}

func (p *fakePool) Stop(_ context.Context, reason string) (api.PoolStopResult, error) {
	p.controlPlane.record("stop " + p.name + ": " + reason)
	return api.PoolStopResult{Stopping: 2}, p.err
}

func (p *fakePool) Wait(ctx context.Context) error {
	if p.neverEnds {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (p *fakePool) Signal(_ context.Context, slot int, signal string, control api.Control) error {
	p.controlPlane.record(signal + " " + api.WorkerName(p.name, slot))
	p.control = control
	return cmp.Or(p.signalErrors[slot], p.err)
}

func (p *fakePool) Status(context.Context) (api.PoolStatus, error) {
	p.controlPlane.mu.Lock()
	defer p.controlPlane.mu.Unlock()
	if len(p.statusErrors) > 0 {
		err := p.statusErrors[0]
		p.statusErrors = p.statusErrors[1:]
		return api.PoolStatus{}, err
	}
	if p.err != nil && len(p.statuses) == 0 {
		return api.PoolStatus{}, p.err
	}
	return nextStep(&p.statuses), nil
}

func (p *fakePool) Running(ctx context.Context) (api.PoolStatus, error) { return p.Status(ctx) }

func (p *fakePool) Workers(context.Context) (api.PoolWorkers, error) { return p.view, p.err }
func (p *fakePool) Roster(context.Context) (api.PoolWorkers, error)  { return p.view, p.err }

func (p *fakePool) State(_ context.Context, slot int) (api.WorkerState, error) {
	p.controlPlane.mu.Lock()
	defer p.controlPlane.mu.Unlock()
	script := p.states[slot]
	if len(script) == 0 {
		return api.WorkerState{}, api.ErrWorkerNotFound
	}
	state := nextStep(&script)
	p.states[slot] = script
	return state, nil
}

func (p *fakePool) Logs(_ context.Context, o tempool.LogOptions, yield func(api.LogLine)) error {
	p.logOptions = o
	for _, line := range p.logs {
		yield(line)
	}
	if o.Unreachable != nil {
		o.Unreachable("http://gone:7460", api.Errorf(api.CodeUnavailable, "connection refused"))
	}
	return p.err
}

func (p *fakePool) History(context.Context, int) ([]lifecycle.Transition, error) {
	return p.history, nil
}

func (p *fakePool) TryCheckout(_ context.Context, o tempool.CheckoutOptions) (*tempool.Lease, error) {
	p.options = o
	return p.lease, p.err
}

func (p *fakePool) Checkout(ctx context.Context, o tempool.CheckoutOptions) (*tempool.Lease, error) {
	p.options = o
	if p.lease == nil {
		waiting, cancel := context.WithTimeout(ctx, o.Wait)
		defer cancel()
		<-waiting.Done()
		return nil, api.Errorf(api.CodeQueueTimeout, "no worker of pool %s came free in time", p.name)
	}
	return p.lease, nil
}

// fakeTemporal is what a client asks about a pool and about the sessions that move there.
type fakeTemporal struct {
	client.Client
	fakePool *fakePool
}

// answered is the answer of a workflow.
func answered(value any) converter.EncodedValue {
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(value)
	if err != nil {
		panic(err)
	}
	return client.NewValue(payloads)
}

func (t fakeTemporal) QueryWorkflowWithOptions(_ context.Context,
	r *client.QueryWorkflowWithOptionsRequest) (*client.QueryWorkflowWithOptionsResponse, error) {
	if r.QueryType == api.QueryProgress {
		progress, err := t.fakePool.migration.next()
		return &client.QueryWorkflowWithOptionsResponse{QueryResult: answered(progress)}, err
	}
	status := roster(api.RosterEntry{State: lifecycle.Ready, Endpoint: t.fakePool.gateway})
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: answered(status)}, nil
}

func (t fakeTemporal) UpdateWorkflow(_ context.Context,
	o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	r := o.Args[0].(api.EvacuateRequest)
	t.fakePool.controlPlane.record(fmt.Sprintf("evacuate %s/%d for %s: %s", t.fakePool.name, r.Worker, r.ExcludeFor,
		r.Reason))
	return fakeUpdate{}, nil
}

func (t fakeTemporal) ExecuteWorkflow(_ context.Context, o client.StartWorkflowOptions, _ any,
	arguments ...any) (client.WorkflowRun, error) {
	t.fakePool.controlPlane.record(fmt.Sprintf("%s %v", o.StaticSummary, arguments[0]))
	return t.fakePool.migration, nil
}

func (t fakeTemporal) GetWorkflow(context.Context, string, string) client.WorkflowRun {
	return t.fakePool.migration
}

// fakeUpdate has no result.
type fakeUpdate struct{ client.WorkflowUpdateHandle }

func (fakeUpdate) Get(context.Context, any) error { return nil }

// fakeMigration ends after it has returned all of progress.
type fakeMigration struct {
	client.WorkflowRun
	progress []api.SessionProgress
	done     chan struct{}
	moves    api.SessionMoves
	err      error
}

func (m *fakeMigration) next() (api.SessionProgress, error) {
	if len(m.progress) == 1 {
		close(m.done)
	}
	if len(m.progress) == 0 {
		return api.SessionProgress{}, api.ErrUnavailable
	}
	p := m.progress[0]
	m.progress = m.progress[1:]
	return p, nil
}

func (m *fakeMigration) GetRunID() string { return "" }

func (m *fakeMigration) Get(ctx context.Context, to any) error {
	select {
	case <-m.done:
		return cmp.Or(m.err, answered(m.moves).Get(to))
	case <-ctx.Done():
		return ctx.Err()
	}
}

// nextStep takes the next item of a script and leaves the last one.
func nextStep[T any](script *[]T) T {
	item := (*script)[0]
	if len(*script) > 1 {
		*script = (*script)[1:]
	}
	return item
}

// result is the exit code and output of tempool.
type result struct {
	code     int
	out, err string
}

// ctl runs a command line of tempool against f; nil is no control plane, for what only asks gateways.
func ctl(t *testing.T, f *fakeControlPlane, args ...string) result {
	t.Helper()
	return ctlWith(t.Context(), f, args...)
}

func ctlWith(ctx context.Context, f *fakeControlPlane, args ...string) result {
	var out, err bytes.Buffer
	if f == nil {
		code := Run(ctx, append(args, "--address", "127.0.0.1:1"), &out, &err)
		return result{code, out.String(), err.String()}
	}
	a := &app{
		in: strings.NewReader(cmp.Or(f.in, "from standard input")), out: &out, err: &err, pollInterval: time.Millisecond,
		now: func() time.Time { return noon },
		dial: func(_ context.Context, o tempool.Options) (controlPlane, error) {
			f.options = o
			return f, f.dialErr
		},
		browse: func(url string) error {
			f.browsed = append(f.browsed, url)
			return f.browseErr
		},
	}
	code := a.run(ctx, args)
	return result{code, out.String(), err.String()}
}

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// lines joins expected lines of output.
func lines(all ...string) string { return strings.Join(all, "\n") + "\n" }

func roster(entries ...api.RosterEntry) api.PoolStatus {
	return api.PoolStatus{Pool: "python", Size: len(entries), SpecVersion: 1, Workers: entries}
}

func entry(slot int, state lifecycle.State, incarnation int64, reason string) api.RosterEntry {
	return api.RosterEntry{Slot: slot, State: state, Incarnation: incarnation, Starts: incarnation - 1, Reason: reason}
}

// succeed runs a command line that succeeds.
func succeed(t *testing.T, f *fakeControlPlane, args ...string) result {
	t.Helper()
	r := ctl(t, f, args...)
	requireCode(t, ExitOK, r)
	return r
}

// fail runs a command line that fails.
func fail(t *testing.T, f *fakeControlPlane, args ...string) result {
	t.Helper()
	r := ctl(t, f, args...)
	requireCode(t, ExitFailed, r)
	return r
}

// decode is the output as JSON.
func decode[T any](t *testing.T, r result) (out T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(r.out), &out), r.out)
	return out
}

func requireCode(t *testing.T, want int, r result) {
	t.Helper()
	require.Equal(t, want, r.code, "stdout: %s\nstderr: %s", r.out, r.err)
}
