package gateway

import (
	"context"
	"errors"
	"slices"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/wire"
)

// Reset ends a lease that has expired, with the calls under it, and has the worker forget what its holder left behind, by the method
// lease.reset. The worker's workflow lets nobody else have the worker meanwhile. Usage counts the calls under the lease. The error,
// which is coded, says why the worker is not as new: worker_not_found, deadline_exceeded, or as the call's.
func (g *Gateway) Reset(ctx context.Context, worker string, incarnation int64, leaseID string) (api.Usage, error) {
	ref, err := api.ParseLeaseID(leaseID)
	if err != nil {
		return api.Usage{}, err
	}
	s := g.seatOf(worker, incarnation)
	if s == nil {
		return api.Usage{}, errNoProcess(worker, g.config.HostID)
	}
	usage, err := s.expire(ctx, ref)
	if err != nil {
		return usage, err
	}
	if s.conn == nil {
		return usage, api.Errorf(api.CodeInvalid, "%s speaks no protocol by which it could be reset", worker)
	}
	if hello, said := wire.HelloOf(s.conn); said && !slices.Contains(hello.Methods, api.HookLeaseReset) {
		return usage, api.Errorf(api.CodeInvalid, "%s has no method %s", worker, api.HookLeaseReset)
	}
	if _, err := s.conn.Call(ctx, wire.Request{Method: api.HookLeaseReset, Payload: []byte("[]")}); err != nil {
		code := api.CodeWorkerError
		if errors.Is(err, context.DeadlineExceeded) {
			code = api.CodeDeadlineExceeded
		}
		return usage, api.Errorf(code, "%s of %s failed: %w", api.HookLeaseReset, worker, err)
	}
	return usage, nil
}

// expire fences the lease, and waits until the calls under it are over and the worker has answered them.
func (s *seat) expire(ctx context.Context, ref api.LeaseRef) (api.Usage, error) {
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
		return api.Usage{}, api.Errorf(api.CodeDeadlineExceeded, "calls under lease %s are still in flight: %w", s.leaseID(ref), ctx.Err())
	}
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	if gr == nil {
		return api.Usage{}, nil
	}
	return gr.calls.usage(), nil
}
