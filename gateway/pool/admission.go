package pool

import (
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
)

// admission says whether a call may start now.
type admission int

const (
	admitted   admission = iota
	rejected             // the error says why
	mustQueue            // no worker of the pool has a free slot
	unverified           // the workflow must confirm the lease
)

// admitLocked chooses a worker of the target that a call may start on now. An error comes with rejected only.
func (p *poolState) admitLocked(t *Target, now time.Time) (*upstream, admission, error) {
	switch t.kind {
	case underLease:
		admission, err := t.upstream.admitLeaseLocked(t.ref, t.authority, now)
		return t.upstream, admission, err
	}
	if t.worker != "" {
		if t.kind == aheadOfAll {
			if err := p.goneLocked(t.worker); err != nil {
				return nil, rejected, err
			}
		}
		if newest := p.newestLiveLocked(t.worker); newest != nil && newest.suspension != nil {
			return nil, rejected, newest.errSuspended()
		}
		if u := p.withSlotLocked(t.worker, now); u != nil && p.queue.Empty(t.worker) {
			p.takeTurnLocked(u)
			return u, admitted, nil
		}
		return nil, mustQueue, nil
	}
	if p.queue.Empty("") {
		if u := p.pickLocked(t.preferred, now); u != nil {
			return u, admitted, nil
		}
	}
	return nil, mustQueue, nil
}

// admitLeaseLocked decides about a call under the lease ref without changing anything.
func (u *upstream) admitLeaseLocked(ref api.LeaseRef, a lease.Authority, now time.Time) (admission, error) {
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
	case counts && !a.Opens(u.lease.key):
		return rejected, lease.ErrForbidden(leaseID(ref))
	case u.question.unclaimed && !u.pool.dispatcher.monitor.lost.Load():
		return rejected, api.Errorf(api.CodeUnavailable,
			"%s was taken over from an earlier agent, and its worker has not claimed it yet", u.worker).After(time.Second)
	case counts && u.unsure && !u.pool.dispatcher.monitor.lost.Load(): // an earlier agent knew it
		return unverified, nil
	case counts && now.Before(u.lease.expires):
		return admitted, nil
	case counts && u.pool.dispatcher.monitor.lost.Load():
		return rejected, errExpired(leaseID(ref))
	}
	return unverified, nil
}

// goneLocked is why no call will start on the worker, nil if one may.
func (p *poolState) goneLocked(worker string) error {
	newest := p.newestLiveLocked(worker)
	switch {
	case newest == nil:
		return errNoProcess(worker, p.dispatcher.config.HostID)
	case newest.draining:
		return api.Errorf(api.CodeDraining, "%s is draining and takes no new call", worker).After(time.Second)
	}
	return nil
}

func leaseID(r api.LeaseRef) string { return api.LeaseID(r.Pool, r.Slot, r.Incarnation, r.Seq) }

func errExpired(id string) *api.Error {
	return api.Errorf(api.CodeLeaseFenced,
		"lease %s has expired, and Temporal does not respond, so it is unknown whether it was renewed; check out again", id)
}

func errNoProcess(worker, hostID string) *api.Error {
	return api.Errorf(api.CodeWorkerNotFound, "no process of %s runs on host %s", worker, hostID)
}
