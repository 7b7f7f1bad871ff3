package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// tally counts calls.
type tally struct {
	requests, failed int64
	took             time.Duration
}

func (t *tally) add(failed bool, took time.Duration) {
	t.requests++
	if failed {
		t.failed++
	}
	t.took += took
}

func (t *tally) usage() api.Usage {
	return api.Usage{Requests: t.requests, Failed: t.failed, TotalMS: t.took.Milliseconds()}
}

// seat is one incarnation on this host: which lease counts on it, and which calls run. Below its first lines, everything is
// guarded by the desk's mu.
type seat struct {
	desk        *desk
	worker      string
	incarnation int64
	process     *process.Process
	spec        spec.Spec
	conn        wire.Conn       // nil for protocol none
	transport   *http.Transport // of protocol none
	verify      chan struct{}   // one token: who has it may ask the workflow whether a lease counts
	account     *account

	newest   api.LeaseRef // the newest lease seen, granted or not; an older one is fenced
	grant    *grant       // the lease that counts, if it is known
	draining bool
	gone     bool // the process has ended
	inFlight int
	calls    tally           // of the whole incarnation
	quiet    []chan struct{} // closed when no call is in flight
	turn     int64           // calls it was picked for, about: equals take turns by it
	score    float64

	// How the gateway itself fares in getting a lease.
	asking    bool      // a checkout is on its way
	refusals  int       // in a row
	retryAt   time.Time // not before
	requestID string    // of a checkout whose answer was never seen; the next one repeats it
}

// grant is a lease that the workflow has confirmed.
type grant struct {
	ref    api.LeaseRef
	lease  api.Lease
	ours   bool
	ended  bool   // given back, or superseded: no new call
	reason string // of ended
	// before is closed when the calls under the lease before are over; nil if there were none.
	before   <-chan struct{}
	flights  map[*flight]struct{}
	quiet    chan struct{} // closed when flights is empty; set once the lease is superseded
	calls    tally
	fatal    string // why the worker asked to be replaced
	idleFrom time.Time

	// Of a lease of the gateway's own.
	tiredAt time.Time // from here on it goes back between two calls
	spentAt time.Time // from here on no call begins
	asking  bool      // a renewal or a checkin is on its way
	retryAt time.Time // of a renewal or checkin that failed: not before
}

// flight is one call in progress.
type flight struct {
	seat   *seat
	grant  *grant
	began  time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
	placed func() // called once it has a place, under mu; nil for most

	// call is what is sent to the worker, nil while that is not known or the worker speaks plain HTTP; method is its method, and news
	// the first that was heard of its answer.
	call   *wire.Exchange
	method string
	news   wire.Event
	over   bool // it has left flight; guarded by the desk's mu
}

// entered tells that the call has its place in the queue or on a worker.
func (f *flight) entered() {
	if f.placed != nil {
		f.placed()
	}
}

// verdict is what a seat says to a call under a lease.
type verdict int

const (
	admitted verdict = iota
	refused          // the error says why
	unknown          // the workflow has to be asked
)

// judge decides about a call under the lease ref at this time, without changing anything.
func (s *seat) judge(ref api.LeaseRef, now time.Time) (verdict, *api.Error) {
	id := s.leaseID(ref)
	switch {
	case ref.Older(s.newest), ref.Incarnation < s.incarnation:
		return refused, api.Errorf(api.CodeLeaseFenced, "lease %s is older than the newest of %s, whose incarnation is %d; check out again", id, s.worker, s.incarnation)
	case s.grant != nil && s.grant.ref == ref && s.grant.ended:
		return refused, api.Errorf(api.CodeLeaseFenced, "lease %s on %s has ended (%s); check out again", id, s.worker, s.grant.reason)
	case s.gone:
		return refused, api.Errorf(api.CodeLeaseFenced, "the process of lease %s has ended; check out again", id)
	case s.draining:
		return refused, api.Errorf(api.CodeDraining, "%s is draining and takes no new call; check lease %s in and check out again", s.worker, id)
	case s.grant != nil && s.grant.ref == ref && s.grant.ours:
		return refused, errOurs(id)
	case s.grant != nil && s.grant.ref == ref && now.Before(s.grant.lease.ExpiresAt):
		return admitted, nil
	}
	return unknown, nil
}

func (s *seat) leaseID(r api.LeaseRef) string {
	return api.LeaseID(r.Pool, r.Slot, r.Incarnation, r.Seq)
}

// adopt makes a confirmed lease the one that counts. Calls under the one before are cancelled, and those under the new one wait
// for them to be over. It reports false when a newer lease has been seen, which fences this one.
func (s *seat) adopt(lease api.Lease, ref api.LeaseRef, ours bool, now time.Time) bool {
	if ref.Older(s.newest) || s.gone || s.desk.shutBy != nil {
		return false
	}
	if old := s.grant; old != nil && old.ref == ref {
		if old.ended {
			return false
		}
		if lease.ExpiresAt.After(old.lease.ExpiresAt) {
			old.lease = lease
		}
		return true
	}
	old := s.grant
	s.supersede(ref, "a newer lease was granted")
	s.desk.retire(s)
	s.grant = &grant{ref: ref, lease: lease, ours: ours, flights: make(map[*flight]struct{}), idleFrom: now}
	s.account.granted.Add(1)
	if s.inFlight > 0 || s.conn != nil && s.conn.InFlight() > 0 {
		s.grant.before = s.whenFree(old)
	}
	return true
}

// workerPause is how often a worker is looked at that has calls to give up.
const workerPause = time.Millisecond

// whenFree is closed when no call is in flight under the lease old or those before it, and the worker has answered the cancelled
// ones, too. No call may reach the worker until then.
func (s *seat) whenFree(old *grant) <-chan struct{} {
	free := make(chan struct{})
	var waits []<-chan struct{}
	if old != nil {
		if old.before != nil {
			waits = append(waits, old.before)
		}
		if len(old.flights) > 0 {
			old.quiet = make(chan struct{})
			waits = append(waits, old.quiet)
		}
	}
	s.desk.gateway.work.Go(func() {
		defer close(free)
		defer s.desk.stir()
		for _, quiet := range waits {
			select {
			case <-quiet:
			case <-s.desk.gateway.life.Done():
				return
			}
		}
		ticker := time.NewTicker(workerPause)
		defer ticker.Stop()
		for s.conn != nil && s.conn.InFlight() > 0 {
			select {
			case <-ticker.C:
			case <-s.conn.Done(): // a worker that answers no cancel breaks its connection
				return
			case <-s.desk.gateway.life.Done():
				return
			}
		}
	})
	return free
}

// supersede fences every lease older than ref.
func (s *seat) supersede(ref api.LeaseRef, why string) {
	if !s.newest.Older(ref) {
		return
	}
	s.newest = ref
	if old := s.grant; old != nil && old.ref.Older(ref) {
		s.endGrant(why)
		fenced := api.Errorf(api.CodeLeaseFenced, "lease %s on %s was superseded while the call ran", old.lease.ID, s.worker)
		for f := range old.flights {
			f.cancel(fenced)
		}
		s.grant = nil
	}
}

// endGrant lets no further call begin under the lease that counts.
func (s *seat) endGrant(why string) {
	if s.grant != nil && !s.grant.ended {
		s.grant.ended, s.grant.reason = true, why
	}
}

// whenQuiet is closed when no call is in flight.
func (s *seat) whenQuiet() <-chan struct{} {
	done := make(chan struct{})
	if s.inFlight == 0 {
		close(done)
	} else {
		s.quiet = append(s.quiet, done)
	}
	return done
}

// begin puts a call in flight under the lease that counts.
func (s *seat) begin(f *flight, now time.Time) {
	f.seat, f.grant, f.began = s, s.grant, now
	f.grant.flights[f] = struct{}{}
	s.inFlight++
}

// finish takes a call out of flight; err is how it went.
func (s *seat) finish(f *flight, err error, now time.Time) {
	f.over = true
	delete(f.grant.flights, f)
	if f.grant.quiet != nil && len(f.grant.flights) == 0 {
		close(f.grant.quiet)
		f.grant.quiet = nil
	}
	f.grant.idleFrom = now
	if err == nil || started(err) {
		took := now.Sub(f.began)
		f.grant.calls.add(err != nil, took)
		s.calls.add(err != nil, took)
		s.account.call(err != nil, took)
		s.desk.books.calls.observe(took)
	}
	if fatal := fatality(err); fatal != "" {
		f.grant.fatal = fatal
	}
	if s.inFlight--; s.inFlight == 0 {
		for _, done := range s.quiet {
			close(done)
		}
		s.quiet = nil
	}
}

// checkinOf is how a lease is given back, with what was counted under it. An outcome worse than the holder's own stands.
func checkinOf(gr *grant, outcome api.Outcome, reason string) api.CheckinRequest {
	if gr.fatal != "" && outcome != api.OutcomeClose {
		outcome, reason = api.OutcomeClose, gr.fatal
	}
	return api.CheckinRequest{LeaseID: gr.lease.ID, Outcome: outcome, Error: reason, Usage: gr.calls.usage()}
}
