package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/wire"
)

// aimedPause is how often a call that is for one worker alone looks whether that has room. No other call begins there meanwhile, so it is next.
const aimedPause = 2 * time.Millisecond

// CallHook has one worker of this host run a hook about a session: a method that it may offer, called with the session's id. called is
// false, without an error, for a worker that does not offer it. The call runs under a lease of the gateway's own and waits for the worker
// until ctx ends, ahead of all other calls. Errors are coded: worker_not_found if no process of the worker lives here, busy if it did not
// come free in time, draining, and as Call's.
func (g *Gateway) CallHook(ctx context.Context, worker, hook, session string) (called bool, err error) {
	pool, _, err := api.ParseWorkerName(worker)
	if err != nil {
		return false, err
	}
	d, _ := g.discover(pool)
	if d == nil {
		return false, errNoProcess(worker, g.config.HostID)
	}
	offered, err := d.offers(worker, hook)
	if err != nil || !offered {
		return false, err
	}
	body, err := json.Marshal([]string{session})
	if err != nil {
		return false, api.Errorf(api.CodeInvalid, "session %q cannot be told to a worker: %w", session, err)
	}
	f, stop := g.newFlight(ctx, 0)
	defer stop()
	if err := d.aim(f, worker); err != nil {
		return false, g.refusal(f, err)
	}
	_, err = f.run(Request{Method: hook, Session: session, Body: body})
	f.seat.desk.end(f, err)
	var remote *wire.RemoteError
	if errors.As(err, &remote) && remote.Code == wire.CodeMethodNotFound {
		return false, nil
	}
	return true, err
}

func errNoProcess(worker, hostID string) *api.Error {
	return api.Errorf(api.CodeWorkerNotFound, "no process of %s lives on host %s", worker, hostID)
}

// offers reports whether the worker said in its hello that it has such a method.
func (d *desk) offers(worker, method string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.newest(worker)
	if s == nil {
		return false, errNoProcess(worker, d.gateway.config.HostID)
	}
	if s.conn == nil {
		return false, nil
	}
	hello, said := wire.HelloOf(s.conn)
	return said && slices.Contains(hello.Methods, method), nil
}

// newest is the worker's newest incarnation that lives, under mu; nil if there is none.
func (d *desk) newest(worker string) *seat {
	if s := d.seats[worker]; s != nil && !s.gone {
		return s
	}
	for _, f := range slices.Backward(d.order) {
		if f.worker == worker && !f.gone {
			return f
		}
	}
	return nil
}

// aim begins the call on this worker, as soon as it has room for it.
func (d *desk) aim(f *flight, worker string) error {
	d.mu.Lock()
	d.aimed[worker]++
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		if d.aimed[worker]--; d.aimed[worker] == 0 {
			delete(d.aimed, worker)
		}
		d.mu.Unlock()
		d.stir()
	}()
	ticker := time.NewTicker(aimedPause)
	defer ticker.Stop()
	for {
		begun, err := d.hit(f, worker)
		if begun || err != nil {
			return err
		}
		select {
		case <-f.ctx.Done():
			if err := context.Cause(f.ctx); !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			return api.Errorf(api.CodeBusy, "%s did not come free in time; it serves calls, or somebody holds a lease on it", worker).After(time.Second)
		case <-ticker.C:
		}
	}
}

// hit begins the call if the worker has room for it now, and else sees to it that the gateway gets a lease on it.
func (d *desk) hit(f *flight, worker string) (begun bool, err error) {
	now := time.Now()
	if d.gateway.contact.fenced(now) {
		return false, errFenced(d.gateway.contact.silence(now))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shutBy != nil {
		return false, d.shutBy
	}
	newest := d.newest(worker)
	if newest == nil {
		return false, errNoProcess(worker, d.gateway.config.HostID)
	}
	for _, s := range d.order {
		if s.worker != worker {
			continue
		}
		if _, open := s.load(now); open {
			if err := d.spend(s, now); err != nil {
				return false, err
			}
			s.begin(f, now)
			return true, nil
		}
	}
	if newest.draining {
		return false, api.Errorf(api.CodeDraining, "%s is draining and takes no new call", worker).After(time.Second)
	}
	if d.leasable(newest, now) && d.asking < maxAsking && !d.gateway.contact.lost.Load() {
		d.lease(newest)
	}
	return false, nil
}
