package gateway

import (
	"context"
	"errors"
	"slices"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/process/wire"
)

// Reset ends a lease that has expired, with the calls under it, and has the worker forget what its holder left behind, by the method
// lease.reset. The worker's workflow lets nobody else have the worker meanwhile. Usage counts the calls under the lease. The error,
// which is coded, says why the worker is not as new: worker_not_found, deadline_exceeded, or as the call's.
func (g *Gateway) Reset(ctx context.Context, worker string, incarnation int64, leaseID string) (tempool.Usage, error) {
	ref, err := tempool.ParseLeaseID(leaseID)
	if err != nil {
		return tempool.Usage{}, err
	}
	s := g.seatOf(worker, incarnation)
	if s == nil {
		return tempool.Usage{}, errNoProcess(worker, g.config.HostID)
	}
	usage, err := s.expire(ctx, ref)
	if err != nil {
		return usage, err
	}
	if s.conn == nil {
		return usage, tempool.Errorf(tempool.CodeInvalid, "%s speaks no protocol by which it could be reset", worker)
	}
	if hello, said := wire.HelloOf(s.conn); said && !slices.Contains(hello.Methods, tempool.HookLeaseReset) {
		return usage, tempool.Errorf(tempool.CodeInvalid, "%s has no method %s", worker, tempool.HookLeaseReset)
	}
	if _, err := s.conn.Call(ctx, wire.Request{Method: tempool.HookLeaseReset, Payload: []byte("[]")}); err != nil {
		code := tempool.CodeWorkerError
		if errors.Is(err, context.DeadlineExceeded) {
			code = tempool.CodeDeadlineExceeded
		}
		return usage, tempool.Errorf(code, "%s of %s failed: %w", tempool.HookLeaseReset, worker, err)
	}
	return usage, nil
}

// expire fences the lease, and waits until the calls under it are over and the worker has answered them.
func (s *seat) expire(ctx context.Context, ref tempool.LeaseRef) (tempool.Usage, error) {
	s.desk.mu.Lock()
	gr := s.grant
	next := ref
	next.Seq++
	s.supersede(next, "it expired")
	if gr != nil && gr.ref != ref {
		gr = nil
	}
	free := s.whenFree(gr)
	s.desk.mu.Unlock()
	select {
	case <-free:
	case <-ctx.Done():
		return tempool.Usage{}, tempool.Errorf(tempool.CodeDeadlineExceeded, "calls under lease %s are still in flight: %w", s.leaseID(ref), ctx.Err())
	}
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	if gr == nil {
		return tempool.Usage{}, nil
	}
	return gr.calls.usage(), nil
}
