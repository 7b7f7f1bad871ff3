package dispatch

import (
	"time"

	"github.com/tempool/tempool/api"
)

// admission says whether a call may start now.
type admission int

const (
	admitted   admission = iota
	rejected             // the error says why
	mustQueue            // no worker of the pool has a free slot
	noSlot               // the target's only worker has no free slot
	unverified           // the workflow must confirm the lease
)

// admitLocked chooses a worker of the target that a call may start on now. An error comes with rejected only.
func (p *poolState) admitLocked(t *Target, now time.Time) (*upstream, admission, error) {
	switch t.kind {
	case underLease:
		admission, err := t.upstream.admitLeaseLocked(t.ref, t.authority, now)
		return t.upstream, admission, err
	case reserving:
		return p.admitWorkerLocked(t.worker, now)
	}
	if t.worker != "" {
		if newest := p.newestLiveLocked(t.worker); newest != nil && newest.suspension != nil {
			return nil, rejected, newest.errSuspended()
		}
		if u := p.openLocked(t.worker, now); u != nil && p.queue.Peek() == nil && p.queue.PeekFor(t.worker) == nil {
			p.takeTurnLocked(u)
			return u, admitted, nil
		}
		return nil, mustQueue, nil
	}
	if p.queue.Peek() == nil {
		if u := p.pickLocked(t.preferred, now); u != nil {
			return u, admitted, nil
		}
	}
	return nil, mustQueue, nil
}

// admitLeaseLocked decides about a call under the lease ref without changing anything.
func (u *upstream) admitLeaseLocked(ref api.LeaseRef, a Authority, now time.Time) (admission, error) {
	counts := u.lease != nil && u.lease.ref == ref
	switch {
	case ref.Older(u.newest), ref.Incarnation < u.incarnation:
		return rejected, api.Errorf(api.CodeLeaseFenced,
			"lease %s is older than the newest of %s, whose incarnation is %d; check out again", leaseID(ref), u.worker,
			u.incarnation)
	case counts && u.lease.ended:
		return rejected, api.Errorf(api.CodeLeaseFenced, "lease %s on %s has ended (%s); check out again", leaseID(ref),
			u.worker, u.lease.reason)
	case u.gone:
		return rejected, api.Errorf(api.CodeLeaseFenced, "the process of lease %s has ended; check out again", leaseID(ref))
	case u.draining:
		return rejected, api.Errorf(api.CodeDraining,
			"%s is draining and takes no new call; check lease %s in and check out again", u.worker, leaseID(ref))
	case u.suspension != nil:
		return rejected, u.errSuspended()
	case counts && u.lease.own:
		return rejected, errOwnLease(leaseID(ref))
	case counts && !a.opens(u.lease.key):
		return rejected, errForbiddenLease(leaseID(ref))
	case counts && now.Before(u.lease.expires):
		return admitted, nil
	case counts && u.pool.dispatcher.monitor.lost.Load():
		return rejected, errExpired(leaseID(ref))
	}
	return unverified, nil
}

// admitWorkerLocked returns an incarnation of the worker with a free slot. If there is none, it checks the worker out.
func (p *poolState) admitWorkerLocked(worker string, now time.Time) (*upstream, admission, error) {
	newest := p.newestLiveLocked(worker)
	if newest == nil {
		return nil, rejected, errNoProcess(worker, p.dispatcher.config.HostID)
	}
	if u := p.withSlotLocked(worker, now); u != nil {
		return u, admitted, nil
	}
	if newest.draining {
		return nil, rejected, api.Errorf(api.CodeDraining, "%s is draining and takes no new call", worker).After(time.Second)
	}
	if newest.suspension != nil {
		return nil, rejected, newest.errSuspended()
	}
	if p.mayLeaseLocked(newest, now) && p.checkouts < maxCheckouts && !p.dispatcher.monitor.lost.Load() {
		p.leaseLocked(newest)
	}
	return nil, noSlot, nil
}

func leaseID(r api.LeaseRef) string { return api.LeaseID(r.Pool, r.Slot, r.Incarnation, r.Seq) }

func errOwnLease(id string) *api.Error {
	return api.Errorf(api.CodeInvalid,
		"lease %s belongs to the gateway; call the pool instead (POST /v1/pools/POOL/call/METHOD)", id)
}

func errExpired(id string) *api.Error {
	return api.Errorf(api.CodeLeaseFenced,
		"lease %s has expired, and Temporal does not respond, so it is unknown whether it was renewed; check out again", id)
}

func errNoProcess(worker, hostID string) *api.Error {
	return api.Errorf(api.CodeWorkerNotFound, "no process of %s runs on host %s", worker, hostID)
}
