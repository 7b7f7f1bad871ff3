package pool

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/sessions/affinity"
	"github.com/tempool/tempool/spec"
)

// timeout bounds every wait of these tests; only a failing test waits so long.
const timeout = 2 * time.Minute

const poll = 2 * time.Millisecond

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// env is a Dispatcher over real processes of pool p. The tests of package gateway use it over HTTP and with a stricter
// Control.
type env struct {
	t          *testing.T
	dispatcher *Dispatcher
	processes  *process.Supervisor
	spec       spec.Spec
	control    *fakeControl

	mu      sync.Mutex
	reports []report
}

// report is what the Dispatcher had a worker notified of.
type report struct {
	worker      string
	incarnation int64
	reason      string
	replace     bool
}

func (e *env) reported() []report {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.reports)
}

func newEnv(t *testing.T) *env {
	t.Helper()
	script, err := filepath.Abs("../testdata/worker.py")
	require.NoError(t, err)
	sdk, err := filepath.Abs("../../sdk/python")
	require.NoError(t, err)
	e := &env{t: t, spec: spec.Default(),
		control: &fakeControl{incarnations: map[string]int64{}, leases: map[string]int64{}, over: map[string]bool{}}}
	e.spec.Pool.Name, e.spec.Pool.Command = "p", []string{"python3", script}
	e.spec.Pool.Env = map[string]string{"PYTHONPATH": sdk, "PYTHONDONTWRITEBYTECODE": "1"}
	e.spec.Pool.EnvFrom = []string{"PATH", "HOME"}
	e.spec.Start.Timeout, e.spec.Queue.Timeout = spec.Duration(timeout), spec.Duration(timeout)
	e.spec.Health.Timeout, e.spec.Call.CancelGrace = spec.Duration(timeout), spec.Duration(timeout)
	e.processes, err = process.Open(t.Context(), process.Config{StateDir: t.TempDir(), HostID: "here"})
	require.NoError(t, err)
	e.dispatcher = New(Config{HostID: "here", Control: e.control, Processes: e.processes,
		Affinity: affinity.New(nil), Events: events.New("here"),
		Unhealthy: func(worker string, incarnation int64, reason string, replace bool) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.reports = append(e.reports, report{worker, incarnation, reason, replace})
		}})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		e.dispatcher.Shut()
		require.NoError(t, e.dispatcher.Close(ctx))
		require.NoError(t, e.processes.Close(ctx))
	})
	return e
}

// start starts an incarnation of p/0 beside the previous one.
func (e *env) start(incarnation int64) *process.Process {
	e.t.Helper()
	p, err := e.startAs("p/0", incarnation)
	require.NoError(e.t, err)
	return p
}

// startAs starts an incarnation of any worker.
func (e *env) startAs(worker string, incarnation int64) (*process.Process, error) {
	p, err := e.processes.Start(e.t.Context(),
		process.Launch{Worker: worker, Incarnation: incarnation, Spec: e.spec, Keep: []int64{incarnation - 1}})
	e.control.mu.Lock()
	e.control.incarnations[worker] = incarnation
	e.control.mu.Unlock()
	if err == nil {
		e.dispatcher.Open(p)
	}
	return p, err
}

func (e *env) echo() {
	e.t.Helper()
	require.NoError(e.t, await(e.t, e.call(e.t.Context(), "echo", "x")).err)
}

// errorOf is the error of a call whose result does not matter.
func errorOf[T any](_ T, err error) error { return err }

// locked returns the result of read, called with the lock of p held.
func locked[T any](p *poolState, read func() T) T {
	p.mu.Lock()
	defer p.mu.Unlock()
	return read()
}

// fakeControl grants every checkout on the newest incarnation, for an hour.
type fakeControl struct {
	lease.Control // panics if another method is called

	mu           sync.Mutex
	incarnations map[string]int64 // by worker
	leases       map[string]int64 // by worker: the last seq
	over         map[string]bool  // leases that were checked in
	down         bool
	delay        func() // if set, is called once, before the next answer arrives that was made earlier
}

// arrive delays an answer.
func (c *fakeControl) arrive() {
	c.mu.Lock()
	delay := c.delay
	c.delay = nil
	c.mu.Unlock()
	if delay != nil {
		delay()
	}
}

// CheckinNow ends the newest lease, and takes every other number.
func (c *fakeControl) CheckinNow(_ context.Context, r api.CheckinRequest) (api.CheckinResult, error) {
	defer c.arrive()
	ref, err := api.ParseLeaseID(r.LeaseID)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over[r.LeaseID] = c.leases[ref.Worker()] == ref.Seq
	return api.CheckinResult{}, err
}

func (c *fakeControl) Checkout(_ context.Context, worker string, o tempool.CheckoutOptions) (*api.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leases[worker]++
	lease := c.leaseLocked(worker)
	lease.Holder, lease.TokenHash = o.Holder, api.HashLeaseToken(o.Token)
	return lease, nil
}

func (c *fakeControl) Renew(_ context.Context, id string, _ time.Duration) (*api.Lease, error) {
	defer c.arrive()
	ref, err := api.ParseLeaseID(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaseLocked(ref.Worker()), err
}

// leaseLocked is the newest lease of a worker, from now on.
func (c *fakeControl) leaseLocked(worker string) *api.Lease {
	pool, slot, _ := api.ParseWorkerName(worker)
	return &api.Lease{ID: api.LeaseID(pool, slot, c.incarnations[worker], c.leases[worker]), Worker: worker, Host: "here",
		GrantedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)}
}

// State says that the newest lease of the worker counts, if there is one that was not checked in.
func (c *fakeControl) State(_ context.Context, worker string) (api.WorkerState, error) {
	defer c.arrive()
	c.mu.Lock()
	defer c.mu.Unlock()
	state := api.WorkerState{Incarnation: c.incarnations[worker], LeaseSeq: c.leases[worker], AsOf: time.Now(),
		State: lifecycle.Ready}
	if newest := c.leaseLocked(worker); state.LeaseSeq > 0 && !c.over[newest.ID] {
		state.State, state.Lease = lifecycle.Busy, newest
	}
	return state, nil
}

// Status says that each worker that was ever started starts again on this host.
func (c *fakeControl) Status(_ context.Context, pool string) (api.PoolStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return api.PoolStatus{}, api.Errorf(api.CodeUnavailable, "Temporal is down")
	}
	status := api.PoolStatus{Pool: pool, Spec: spec.Default()}
	for worker := range c.incarnations {
		if owner, slot, err := api.ParseWorkerName(worker); err == nil && owner == pool {
			status.Workers = append(status.Workers, api.RosterEntry{Slot: slot, Host: "here"})
		}
	}
	if len(status.Workers) == 0 {
		return api.PoolStatus{}, api.Errorf(api.CodePoolNotFound, "no pool %s", pool)
	}
	return status, nil
}

// upstreamOf returns the upstream of a process and adds it if it is missing.
func (p *poolState) upstreamOf(proc *process.Process) *upstream {
	p = p.lock()
	defer p.mu.Unlock()
	return p.upstreamOfLocked(proc)
}
