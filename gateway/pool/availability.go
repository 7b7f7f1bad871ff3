package pool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/spec"
)

// rosterFresh is how long the roster of a pool is cached that has no worker on this host, or not the one that is
// called.
const rosterFresh = time.Second

// hasWorker reports whether the pool has a live worker on this host, or this one if a name is given.
func (p *poolState) hasWorker(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.order, func(u *upstream) bool { return !u.is(gone) && (name == "" || u.worker == name) })
}

// roster is the roster of a pool that was read.
type roster struct {
	at     time.Time
	status api.PoolStatus
}

// availability is nil if a process of the worker, or of any worker for "", may start on this host soon. Else it says
// why not and which gateways serve it.
func (r *roster) availability(worker, hostID string) error {
	if worker == "" {
		return poolAvailability(r.status, hostID)
	}
	return workerAvailability(r.status, worker, hostID)
}

// find returns the state of a pool. If no process of it lives here, or not the one of this worker if a name is given,
// it reads the pool's roster to learn whether one may start here.
func (d *Dispatcher) find(ctx context.Context, pool, worker string) (*poolState, error) {
	p, specKnown := d.knownPool(pool), false
	if p != nil {
		if p.hasWorker(worker) {
			return p, nil
		}
		p.mu.Lock()
		known := p.roster
		specKnown = p.specKnown
		p.mu.Unlock()
		if time.Since(known.at) < rosterFresh {
			return p, known.availability(worker, d.config.HostID)
		}
	} else if invalid := api.CheckPoolName(pool, api.CodePoolNotFound); invalid != nil {
		return nil, invalid
	}
	ctx, cancel := context.WithTimeout(ctx, lease.VerifyTimeout)
	defer cancel()
	status, err := d.config.Control.Status(ctx, pool)
	switch {
	case errors.Is(err, api.ErrPoolNotFound):
		return nil, err
	case err != nil && worker != "":
		return nil, api.Errorf(api.CodeUnavailable, "cannot find out where %s runs: %w", worker, err).After(time.Second)
	case err != nil && specKnown: // Temporal is lost: the call still waits for a worker
		return p, nil
	case err != nil:
		return nil, api.Errorf(api.CodeUnavailable, "cannot find out whether pool %s exists: %w", pool,
			err).After(time.Second)
	}
	if p = d.lockPool(pool); p == nil {
		return nil, ErrClosing
	}
	defer p.mu.Unlock()
	if !p.specKnown {
		p.setSpecLocked(status.Spec)
	}
	p.roster = roster{time.Now(), status}
	return p, p.roster.availability(worker, d.config.HostID)
}

// Locate returns nil if a process of the worker runs on this host. Otherwise its error says why not, and which gateway
// serves the worker.
func (d *Dispatcher) Locate(ctx context.Context, pool, worker string) error {
	p, err := d.find(ctx, pool, worker)
	if err == nil && !p.hasWorker(worker) {
		return errNoProcess(worker, d.config.HostID)
	}
	return err
}

func workerAvailability(status api.PoolStatus, worker, hostID string) error {
	i := slices.IndexFunc(status.Workers,
		func(w api.RosterEntry) bool { return api.WorkerName(status.Pool, w.Slot) == worker })
	if i < 0 && status.Size == 0 && status.ScaledToZero() {
		return api.Errorf(api.CodeWorkerNotFound,
			"pool %s has no worker %s now, because there was no demand; a call to the pool starts one", status.Pool, worker)
	}
	if i < 0 || status.Workers[i].Gone || status.Workers[i].Removing {
		return api.Errorf(api.CodeWorkerNotFound, "pool %s has no worker %s; see tempool ps "+
			"%s", status.Pool, worker, status.Pool)
	}
	switch w := status.Workers[i]; {
	case w.Resting:
		return api.Errorf(api.CodeFailed, "%s is down until an operator restarts it: %s", worker, w.Reason).After(time.Second)
	case w.Host == hostID, w.Host == "", !w.State.Live():
		return nil
	default:
		coded := api.Errorf(api.CodeNoWorkers, "%s is on host %s; call its gateway, or take a lease and use its endpoint",
			worker, w.Host).After(time.Second)
		if w.Endpoint == "" { // it has no process yet
			return coded
		}
		return api.OtherHostError{Gateways: []api.Peer{{Host: w.Host, Endpoint: w.Endpoint}}, Coded: coded}
	}
}

func poolAvailability(status api.PoolStatus, hostID string) error {
	var peers []api.Peer
	serving := map[api.Peer]int{}
	for _, w := range status.Workers {
		peer := api.Peer{Host: w.Host, Endpoint: w.Endpoint}
		switch {
		case w.Gone || w.Removing || w.Resting:
			continue
		case w.Host == hostID, w.Host == "", !w.State.Live():
			return nil
		case !slices.Contains(peers, peer):
			peers = append(peers, peer)
		}
		if w.State.InService() {
			serving[peer]++
		}
	}
	if len(peers) == 0 && status.ScaledToZero() {
		return nil // the call waits, and its demand starts a worker
	}
	if len(peers) == 0 {
		return api.Errorf(api.CodeNoWorkers, "pool %s has no worker in service or starting (0 of %d); see tempool ps %s",
			status.Pool, status.Size, status.Pool).After(time.Second)
	}
	var hosts []string
	for _, peer := range peers {
		if !slices.Contains(hosts, peer.Host) {
			hosts = append(hosts, peer.Host)
		}
	}
	peers = slices.DeleteFunc(peers, func(p api.Peer) bool { return p.Endpoint == "" }) // no process yet
	slices.SortStableFunc(peers, func(a, b api.Peer) int { return cmp.Compare(serving[b], serving[a]) })
	return api.OtherHostError{Gateways: peers, Coded: api.Errorf(api.CodeNoWorkers,
		"all workers of pool %s are on other hosts (%s); call their gateways",
		status.Pool, strings.Join(hosts, ", ")).After(time.Second)}
}

// RequestFormat reports whether the pool's workers speak plain HTTP (protocol none) and the largest request they take,
// in bytes. A pool that this host does not know is looked up; while Temporal does not answer, it has the defaults.
func (d *Dispatcher) RequestFormat(ctx context.Context, pool string) (plain bool, limit int64, err error) {
	s, err := d.Spec(ctx, pool)
	if api.CodeOf(err) == api.CodeUnavailable {
		s, err = spec.Default(), nil
	}
	return s.Pool.Protocol == spec.ProtocolNone, int64(s.Pool.MaxMessage), err
}

// Spec returns the spec of a pool, which is looked up if this host does not know it.
func (d *Dispatcher) Spec(ctx context.Context, pool string) (spec.Spec, error) {
	p := d.knownPool(pool)
	if p == nil {
		var err error
		if p, err = d.find(ctx, pool, ""); p == nil {
			return spec.Spec{}, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.specLocked(), nil
}

// Greeting is that of the newest process of the pool on this host (process.Greeting), and its era; "" for none.
func (d *Dispatcher) Greeting(pool string) (greeting json.RawMessage, era string) {
	if p := d.knownPool(pool); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		var newest time.Time
		for _, u := range p.order {
			if at := u.process.Info().ReadyAt; !u.is(gone) && at.After(newest) && !u.process.Vacant() {
				newest, greeting, era = at, u.process.Greeting(), u.process.Era()
			}
		}
	}
	return greeting, era
}

// Await waits, as a call of the pool does, until a worker here has a place for one. It sends nothing.
func (d *Dispatcher) Await(ctx context.Context, pool string, r Request) error {
	r.Unbuffered = true
	_, err := d.Do(ctx, AnyWorker(pool, "", r.Priority), r, func(c *Call, _ Request) error {
		c.Complete(nil)
		return nil
	})
	return err
}
