package pool

import (
	"context"
	"errors"
	"slices"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/wire"
)

// Reset ends an expired lease with the calls under it and makes the worker clear what its holder left behind, by the
// method lease.reset. The worker's workflow grants no lease meanwhile. Usage counts the calls under the lease. The
// error says why the worker is not clean; its code is worker_not_found, deadline_exceeded, or the call's.
func (d *Dispatcher) Reset(ctx context.Context, worker string, incarnation int64, leaseID string) (api.Usage, error) {
	ref, err := api.ParseLeaseID(leaseID)
	if err != nil {
		return api.Usage{}, err
	}
	u := d.upstreamOf(worker, incarnation)
	if u == nil {
		return api.Usage{}, errNoProcess(worker, d.config.HostID)
	}
	usage, err := u.expire(ctx, ref)
	if err != nil {
		return usage, err
	}
	if err = u.dropState(ctx); err == nil {
		u.pool.mu.Lock()
		defer u.pool.mu.Unlock()
		u.resetting = false
		u.openedLocked()
	}
	return usage, err
}

// dropState has the program drop what the holder of a lease left. A worker whose program fails to stays closed, and is
// replaced.
func (u *upstream) dropState(ctx context.Context) error {
	if u.conn == nil {
		return api.Errorf(api.CodeInvalid, "%s speaks plain HTTP (protocol none), which has no %s", u.worker,
			api.HookLeaseReset)
	}
	if hello, known := wire.HelloOf(u.conn); known && !slices.Contains(hello.Methods, api.HookLeaseReset) {
		return api.Errorf(api.CodeInvalid, "%s has no method %s", u.worker, api.HookLeaseReset)
	}
	if _, err := u.conn.Call(ctx, wire.Request{Method: api.HookLeaseReset, Payload: []byte("[]")}); err != nil {
		code := api.CodeWorkerError
		if errors.Is(err, context.DeadlineExceeded) {
			code = api.CodeDeadlineExceeded
		}
		return api.Errorf(code, "%s of %s failed: %w", api.HookLeaseReset, u.worker, err)
	}
	return nil
}

// expire closes the worker, fences the lease and waits until the calls under it have ended and the worker has answered
// them.
func (u *upstream) expire(ctx context.Context, ref api.LeaseRef) (api.Usage, error) {
	u.pool.mu.Lock()
	u.resetting = true
	l, free := u.fenceLocked(ref, "it expired")
	u.pool.mu.Unlock()
	select {
	case <-free:
	case <-ctx.Done():
		return api.Usage{}, errStillInFlight(leaseID(ref), ctx.Err())
	}
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	if l == nil {
		return api.Usage{}, nil
	}
	return l.count.usage(), nil
}
