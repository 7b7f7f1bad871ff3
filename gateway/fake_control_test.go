package gateway

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// fakeControl is a Control that grants leases in memory, by the rules of worker workflows.
type fakeControl struct {
	mu          sync.Mutex
	spec        spec.Spec
	workers     map[string]*fakeWorker
	order       []string
	granted     map[string]api.Lease // by holder and request id
	asked       map[string]int       // by operation
	down, ended bool                 // of Temporal, of the pool
	skew        time.Duration        // of this host's clock behind Temporal's
	blocked     chan struct{}        // if set, checkouts wait until it is closed
	roster      chan struct{}        // if set, Status waits until it is closed, whatever its deadline
	// refuse, if set, is asked about checkins: with how many there were.
	refuse func(ctx context.Context, checkins int) error
	// renew, if set, is called before each renewal.
	renew func(ctx context.Context)
}

type fakeWorker struct {
	incarnation, seq int64
	endpoint         string
	host             string
	state            lifecycle.State
	lease            *api.Lease
	usage            api.Usage
	outcomes         []api.Outcome
}

func newFakeControl(sp spec.Spec) *fakeControl {
	return &fakeControl{spec: sp, workers: make(map[string]*fakeWorker), granted: make(map[string]api.Lease),
		asked: make(map[string]int)}
}

func (b *fakeControl) add(worker string, incarnation int64) *fakeWorker {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.workers[worker]
	if e == nil {
		e = &fakeWorker{host: "here"}
		b.workers[worker] = e
		b.order = append(b.order, worker)
		slices.Sort(b.order)
	}
	e.incarnation, e.state, e.lease = incarnation, lifecycle.Ready, nil
	return e
}

// with calls look with a worker and the lock held.
func (b *fakeControl) with(worker string, look func(*fakeWorker)) {
	b.set(func() { look(b.workers[worker]) })
}

// set calls change with the lock held.
func (b *fakeControl) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *fakeControl) setDown(down bool) { b.set(func() { b.down = down }) }

func (b *fakeControl) count(operation string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked[operation]
}

// begin counts an operation and fails it while Temporal is down. It locks mu, which the caller unlocks.
func (b *fakeControl) begin(operation string) error {
	b.mu.Lock()
	b.asked[operation]++
	if b.down {
		return api.Errorf(api.CodeUnavailable, "%s: Temporal is down", operation)
	}
	return nil
}

// now is Temporal's time.
func (b *fakeControl) now() time.Time { return time.Now().Add(b.skew) }

func (b *fakeControl) Check(context.Context) error {
	defer b.mu.Unlock()
	return b.begin("check")
}

func (b *fakeControl) Checkout(ctx context.Context, worker string, o tempool.CheckoutOptions) (*api.Lease, error) {
	var release chan struct{}
	b.set(func() {
		if release = b.blocked; release != nil {
			b.asked["blocked checkout"]++
		}
	})
	if release != nil {
		select {
		case <-release:
		case <-ctx.Done():
			return nil, api.Errorf(api.CodeUnavailable, "check out: %w", ctx.Err())
		}
	}
	err := b.begin("checkout")
	defer b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	e := b.workers[worker]
	if e == nil {
		return nil, api.Errorf(api.CodeWorkerNotFound, "no worker %s", worker)
	}
	if lease, again := b.granted[o.Holder+" "+o.RequestID]; again && o.RequestID != "" &&
		lease.TokenHash == api.HashLeaseToken(o.Token) {
		lease.Token = o.Token
		return &lease, nil
	}
	if e.lease != nil && b.now().Before(e.lease.ExpiresAt) {
		return nil, api.Errorf(api.CodeBusy, "%s is leased to %q", worker, e.lease.Holder).After(50 * time.Millisecond)
	}
	if e.state == lifecycle.Suspended {
		return nil, api.Errorf(api.CodeSuspended, "%s is suspended", worker).After(50 * time.Millisecond)
	}
	if e.state != lifecycle.Ready {
		return nil, api.Errorf(api.CodeStarting, "%s is %s", worker, e.state).After(50 * time.Millisecond)
	}
	pool, slot, _ := api.ParseWorkerName(worker)
	e.seq++
	ttl, now := cmp.Or(o.TTL, b.spec.Lease.TTL.D()), b.now()
	lease := api.Lease{
		ID: api.LeaseID(pool, slot, e.incarnation, e.seq), Worker: worker, Seq: e.seq, Incarnation: e.incarnation,
		Holder:  o.Holder,
		Session: o.Session, Host: e.host, Endpoint: e.endpoint, GrantedAt: now, ExpiresAt: now.Add(ttl),
		TTLMS:     ttl.Milliseconds(),
		TokenHash: api.HashLeaseToken(o.Token),
	}
	e.lease = new(lease)
	if o.RequestID != "" {
		b.granted[o.Holder+" "+o.RequestID] = lease
	}
	lease.Token = o.Token
	return &lease, nil
}

// owner is the worker of a lease that counts, for whom has its token.
func (b *fakeControl) owner(leaseID, tokenHash string) (*fakeWorker, error) {
	ref, err := api.ParseLeaseID(leaseID)
	if err != nil {
		return nil, err
	}
	e := b.workers[ref.Worker()]
	if e == nil {
		return nil, api.Errorf(api.CodeWorkerNotFound, "no worker %s", ref.Worker())
	}
	if e.lease == nil || e.lease.ID != leaseID {
		return nil, api.Errorf(api.CodeLeaseFenced, "lease %s has ended", leaseID)
	}
	if err := e.lease.CheckTokenHash(tokenHash); err != nil {
		return nil, err
	}
	return e, nil
}

func (b *fakeControl) Renew(ctx context.Context, leaseID string, ttl time.Duration) (*api.Lease, error) {
	if b.renew != nil {
		b.renew(ctx)
	}
	leaseID, token := api.SplitLeaseID(leaseID)
	err := b.begin("renew")
	defer b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	e, err := b.owner(leaseID, api.HashLeaseToken(token))
	if err != nil {
		return nil, err
	}
	ttl = cmp.Or(ttl, b.spec.Lease.TTL.D())
	e.lease.ExpiresAt, e.lease.TTLMS = b.now().Add(ttl), ttl.Milliseconds()
	return new(*e.lease), nil
}

func (b *fakeControl) checkin(r api.CheckinRequest) (api.CheckinResult, error) {
	e, err := b.owner(r.LeaseID, r.TokenHash)
	if api.CodeOf(err) == api.CodeLeaseFenced {
		return api.CheckinResult{}, nil // a stale one changes nothing
	}
	if err != nil {
		return api.CheckinResult{}, err
	}
	e.usage.Requests += r.Usage.Requests
	e.usage.Failed += r.Usage.Failed
	e.outcomes = append(e.outcomes, r.Outcome)
	e.lease = nil
	return api.CheckinResult{State: e.state}, nil
}

func (b *fakeControl) beginCheckin(ctx context.Context) error {
	err := b.begin("checkin")
	if refuse, n := b.refuse, b.asked["checkin"]; err == nil && refuse != nil {
		b.mu.Unlock()
		err = refuse(ctx, n)
		b.mu.Lock()
	}
	return err
}

func (b *fakeControl) Checkin(ctx context.Context, r api.CheckinRequest) error {
	err := b.beginCheckin(ctx)
	defer b.mu.Unlock()
	if err == nil {
		_, _ = b.checkin(r) // of a signal nobody gets the result
	}
	return err
}

func (b *fakeControl) CheckinNow(ctx context.Context, r api.CheckinRequest) (api.CheckinResult, error) {
	err := b.beginCheckin(ctx)
	defer b.mu.Unlock()
	if err != nil {
		return api.CheckinResult{}, err
	}
	return b.checkin(r)
}

func (b *fakeControl) State(_ context.Context, worker string) (api.WorkerState, error) {
	err := b.begin("state")
	defer b.mu.Unlock()
	e := b.workers[worker]
	if err != nil {
		return api.WorkerState{}, err
	}
	if e == nil {
		return api.WorkerState{}, api.Errorf(api.CodeWorkerNotFound, "no worker %s", worker)
	}
	return b.state(worker, e), nil
}

func (b *fakeControl) state(worker string, e *fakeWorker) api.WorkerState {
	s := api.WorkerState{AsOf: b.now(), Worker: worker, State: e.state, Incarnation: e.incarnation, Host: e.host,
		LeaseSeq: e.seq}
	if e.lease != nil {
		copied := *e.lease
		copied.TTLMS = copied.ExpiresAt.Sub(b.now()).Milliseconds()
		s.Lease, s.State = &copied, lifecycle.Busy
	}
	return s
}

func (b *fakeControl) Workers(_ context.Context, pool string) (api.PoolWorkers, error) {
	err := b.begin("view")
	defer b.mu.Unlock()
	if err != nil {
		return api.PoolWorkers{}, err
	}
	if pool != b.spec.Pool.Name {
		return api.PoolWorkers{}, api.Errorf(api.CodePoolNotFound, "no pool %s is running", pool)
	}
	view := api.PoolWorkers{Pool: pool, Size: len(b.order), Ended: b.ended}
	for _, worker := range b.order {
		view.Workers = append(view.Workers, api.Worker{WorkerState: b.state(worker, b.workers[worker])})
		view.Ready++
	}
	return view, nil
}

func (b *fakeControl) Status(_ context.Context, pool string) (api.PoolStatus, error) {
	b.mu.Lock()
	roster := b.roster
	b.mu.Unlock()
	if roster != nil {
		<-roster
	}
	err := b.begin("status")
	defer b.mu.Unlock()
	if err != nil {
		return api.PoolStatus{}, err
	}
	if pool != b.spec.Pool.Name {
		return api.PoolStatus{}, api.Errorf(api.CodePoolNotFound, "no pool %s is running", pool)
	}
	status := api.PoolStatus{Pool: pool, Size: len(b.order), Spec: b.spec}
	if b.spec.Scale.Follows() {
		status.Scale = &api.ScaleStatus{Max: b.spec.Scale.Max}
	}
	for _, worker := range b.order {
		w := b.workers[worker]
		_, slot, _ := api.ParseWorkerName(worker)
		status.Workers = append(status.Workers, // a pool does not learn of leases
			api.RosterEntry{Slot: slot, State: w.state, Incarnation: w.incarnation, Host: w.host, Endpoint: w.endpoint})
	}
	return status, nil
}

func (b *fakeControl) ListPools(context.Context) ([]string, error) {
	err := b.begin("list")
	defer b.mu.Unlock()
	return []string{b.spec.Pool.Name}, err
}
