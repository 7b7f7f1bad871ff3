package pool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// suspension is an order to keep an incarnation out of service.
type suspension struct {
	*api.Suspension                 // shared by the repetitions of the order
	ctx             context.Context // of the hook; done with the next order
	cancel          context.CancelFunc
}

// suspendLocked makes an order the one that counts. It returns nil if a newer one has been seen.
func (u *upstream) suspendLocked(generation int64, reason string) *suspension {
	if generation < u.suspendGeneration {
		return nil
	}
	u.endSuspensionLocked(generation)
	if u.suspended == nil || u.suspended.Generation != generation {
		u.suspended = &api.Suspension{Generation: generation, Reason: reason}
	}
	u.suspension = &suspension{Suspension: u.suspended}
	u.closed[suspended] = cmp.Or(reason, "suspended")
	u.suspension.ctx, u.suspension.cancel = context.WithCancel(u.pool.dispatcher.life)
	if p := u.pool; p.newestLiveLocked(u.worker) == u { // calls for any worker stay queued
		for _, w := range p.queue.All() {
			if w.worker == u.worker && w.held == "" {
				p.refuseLocked(w, u.errSuspended())
			}
		}
	}
	return u.suspension
}

func (u *upstream) endSuspensionLocked(generation int64) {
	u.suspendGeneration = generation
	if u.suspension != nil {
		u.suspension.cancel()
		u.suspension, u.closed[suspended] = nil, ""
		u.endUseLocked()
	}
}

// errSuspended refuses a call to the incarnation. It hints at no retry: the suspension lasts until an operator ends it.
func (u *upstream) errSuspended() *api.Error {
	return api.Errorf(api.CodeSuspended,
		"%s is suspended and takes no call: %s; tempool workers resume %[1]s returns it to service", u.worker,
		u.closed[suspended])
}

// Suspend starts no further call on an incarnation, until EndSuspension. It returns when none is in flight, unless the
// order names a lease, whose holder may return it; when r.Timeout is over it fences the lease and cuts the calls that
// remain. An order that a later one replaces is withdrawn, and changes nothing more. An order that is repeated returns
// what it has ended before. An incarnation that is not on this host is idle.
func (d *Dispatcher) Suspend(ctx context.Context, r api.SuspendRequest) api.SuspendResult {
	u := d.upstreamOf(r.Worker, r.Incarnation)
	if u == nil {
		return api.SuspendResult{}
	}
	u.pool.mu.Lock()
	s := u.suspendLocked(r.Generation, r.Reason)
	u.pool.mu.Unlock()
	if s == nil {
		return api.SuspendResult{Withdrawn: true}
	}
	quiet, cancel := context.WithTimeout(s.ctx, max(0, r.Timeout.D()))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	err := u.pool.await(quiet, func() bool { return u.is(gone) || r.LeaseID == "" && !u.busyLocked() })
	if s.ctx.Err() != nil || err != nil && ctx.Err() != nil { // nobody waits, and the lease's time is not over
		return api.SuspendResult{Withdrawn: true}
	}
	result := d.endForSuspension(ctx, u, s, r.LeaseID)
	if result.Withdrawn {
		return result
	}
	result.Problem = u.callSuspendHook(ctx, s, r.HookTimeout.D())
	if s.ctx.Err() != nil { // a process that is resumed must not be frozen
		return api.SuspendResult{Withdrawn: true}
	}
	return result
}

// callSuspendHook calls the program's hook, unless it has returned to the same order before, and returns why it failed.
// One that takes longer than limit keeps running until the suspension ends.
func (u *upstream) callSuspendHook(ctx context.Context, s *suspension, limit time.Duration) string {
	if !u.offersHook(api.HookSuspend) {
		return ""
	}
	u.pool.mu.Lock()
	returned, problem := s.HookReturned, s.Problem
	s.Hooked = true
	u.pool.mu.Unlock()
	if returned {
		return problem
	}
	ended := make(chan error, 1)
	u.pool.dispatcher.work.Go(func() { ended <- u.callHook(s.ctx, api.HookSuspend, "") })
	select {
	case err := <-ended:
		u.pool.mu.Lock()
		defer u.pool.mu.Unlock()
		problem = hookProblem(api.HookSuspend, err)
		if s.ctx.Err() == nil {
			s.HookReturned, s.Problem = true, problem
		}
		return problem
	case <-ctx.Done():
	case <-time.After(limit):
	}
	return api.HookSuspend + " has not returned within " + limit.String() + " (health.timeout)"
}

// offersHook reports whether the program listed a hook in its hello.
func (u *upstream) offersHook(hook string) bool {
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	return u.offersHookLocked(hook)
}

func (u *upstream) offersHookLocked(hook string) bool {
	if u.conn == nil || u.byKey() && (hook == api.HookSessionRelease || hook == api.HookSessionLoad) {
		return false // its process may have served other keys' sessions only
	}
	hello, known := wire.HelloOf(u.conn)
	return known && slices.Contains(hello.Methods, hook)
}

// callHook calls a hook of the program, with a session if one is named.
func (u *upstream) callHook(ctx context.Context, hook, session string) error {
	request := wire.Request{Method: hook, Payload: []byte("[]")}
	if session != "" {
		body, err := json.Marshal([]string{session})
		if err != nil {
			return err
		}
		request.Headers, request.Payload = map[string]string{sessionHeader: session}, body
	}
	u.pool.mu.Lock()
	conn := u.conn
	u.pool.mu.Unlock()
	if conn == nil { // the process of a key has ended since
		return nil
	}
	_, err := wire.Prepare(ctx, request, (*hookObserver)(u)).Do(conn, nil)
	(*hookObserver)(u).AnsweredLate(nil)
	return err
}

// hookObserver wakes those who wait until a hook has left the process, even if its caller has left before.
type hookObserver upstream

// Answered implements wire.Observer.
func (*hookObserver) Answered(error) {}

// AnsweredLate implements wire.Observer.
func (h *hookObserver) AnsweredLate(error) {
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	(*upstream)(h).openedLocked()
}

func hookProblem(hook string, err error) string {
	if err == nil {
		return ""
	}
	return hook + " failed: " + shorten(err.Error())
}

// endForSuspension fences the lease, cancels the calls under it, and waits until the worker has given them up.
func (d *Dispatcher) endForSuspension(ctx context.Context, u *upstream, s *suspension,
	id string) (result api.SuspendResult) {
	u.pool.mu.Lock()
	if u.suspension != s || s.ctx.Err() != nil { // EndSuspension has said what was ended
		u.pool.mu.Unlock()
		return api.SuspendResult{Withdrawn: true}
	}
	ref, err := api.ParseLeaseID(id)
	if id == "" && u.lease != nil { // its calls outlive it: its holder has returned it without this gateway
		ref, err = u.lease.ref, nil
	}
	if u.is(gone) { // the end of an incarnation also ends its lease
		result.FencedLease = s.FencedLease
		u.pool.mu.Unlock()
		return result
	}
	s.CallsCut = max(s.CallsCut, u.inFlight()) // no call has started since the first order
	if err == nil {
		s.LeaseID = leaseID(ref)
	} else {
		ref = u.leases.Newest
		ref.Seq--
	}
	l := u.fenceLocked(ref, "the worker is suspended")
	u.cancelLocked(nil, api.Errorf(api.CodeSuspended, "%s was suspended while the call ran", u.worker)) // unsent ones move
	u.pool.mu.Unlock()
	_ = u.pool.await(ctx, func() bool { return !u.busyLocked() })
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	if l != nil && s.Checkin == nil {
		checkin := u.checkinLocked(l, api.OutcomeOK, "")
		s.Checkin = &checkin
	}
	result.FencedLease = s.FencedLease
	return result
}

// EndSuspension lets calls start on an incarnation again, after the program's hook; see api.ResumeResult.
func (d *Dispatcher) EndSuspension(ctx context.Context, r api.ResumeRequest) (result api.ResumeResult) {
	u := d.upstreamOf(r.Worker, r.Incarnation)
	if u == nil {
		return result
	}
	u.pool.mu.Lock()
	s := u.suspension
	if r.Generation < u.suspendGeneration {
		u.pool.mu.Unlock()
		return result
	}
	u.suspendGeneration = r.Generation // an order that arrives late finds its end
	hook := r.Suspended
	if s != nil {
		s.cancel()
		hook = hook || s.Hooked
	}
	if last := u.suspended; last != nil && last.Generation == r.Generation-1 && !r.Suspended { // nobody has got its result
		result.FencedLease = last.FencedLease
	}
	u.pool.mu.Unlock()
	if hook && u.offersHook(api.HookResume) {
		ctx, cancel := context.WithTimeoutCause(ctx, r.HookTimeout.D(), errHookTimeout)
		err := u.callHook(ctx, api.HookResume, "")
		if ctx.Err() != nil && err != nil {
			err = context.Cause(ctx)
		}
		cancel()
		result.Problem = hookProblem(api.HookResume, err)
	}
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	if u.suspension == s && r.Generation == u.suspendGeneration {
		u.endSuspensionLocked(r.Generation)
		if u.suspended != nil {
			u.suspended.Ended = true
		}
	}
	u.askSoonLocked()
	u.openedLocked()
	return result
}

var errHookTimeout = errors.New("it did not return within health.timeout")

// Suspension returns what is known of the newest suspension of an incarnation, nil if there was none.
func (d *Dispatcher) Suspension(worker string, incarnation int64) (newest *api.Suspension) {
	d.locked(worker, incarnation, func(u *upstream) {
		if u.suspended != nil {
			known := *u.suspended
			newest = &known
		}
	})
	return newest
}

// resumeSuspensionLocked continues with the suspension of an earlier agent.
func (u *upstream) resumeSuspensionLocked(s *api.Suspension) {
	if s == nil {
		return
	}
	known := *s
	u.suspended, u.suspendGeneration = &known, s.Generation
	if !s.Ended {
		u.suspendLocked(s.Generation, s.Reason)
	}
}

// Drain rejects further calls to an incarnation and waits, until ctx ends, for those in flight; the result's
// CallsCut counts those that remain then. It has the program release the sessions bound to the worker. A drained
// incarnation never serves again. An incarnation that is not on this host counts as drained.
func (d *Dispatcher) Drain(ctx context.Context, worker string, incarnation int64) api.DrainResult {
	u := d.upstreamOf(worker, incarnation)
	if u == nil {
		return api.DrainResult{}
	}
	u.pool.mu.Lock()
	u.retireLocked()
	u.holdSessionsLocked()
	u.pool.mu.Unlock()
	_ = u.pool.await(ctx, func() bool { return u.inFlight() == 0 }) // CallsCut counts those that remain
	u.releaseSessions(ctx)
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	return api.DrainResult{CallsCut: u.inFlight()}
}

// retireLocked takes the incarnation out of service permanently. That withdraws a suspension, and refuses a later one.
func (u *upstream) retireLocked() {
	u.closed[draining] = "it is drained"
	u.endSuspensionLocked(math.MaxInt64)
}

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
		u.closed[resetting] = ""
		u.openedLocked()
	}
	return usage, err
}

// dropState has the program drop what the holder of a lease left. A worker whose program fails to stays closed, and is
// replaced.
func (u *upstream) dropState(ctx context.Context) error {
	u.pool.mu.Lock()
	none, missing := u.conn == nil, false
	if !none {
		_, known := wire.HelloOf(u.conn)
		missing = known && !u.offersHookLocked(api.HookLeaseReset)
	}
	u.pool.mu.Unlock()
	switch {
	case u.spec.Pool.Protocol == spec.ProtocolNone:
		return api.Errorf(api.CodeInvalid, "%s speaks plain HTTP (protocol none), which has no %s", u.worker,
			api.HookLeaseReset)
	case none: // no process of a key runs
		return nil
	case missing:
		return api.Errorf(api.CodeInvalid, "%s has no method %s", u.worker, api.HookLeaseReset)
	}
	if err := u.callHook(ctx, api.HookLeaseReset, ""); err != nil {
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
	u.closed[resetting] = "its lease has expired"
	l := u.fenceLocked(ref, "it expired")
	u.pool.mu.Unlock()
	if err := u.pool.await(ctx, func() bool { return !u.busyLocked() }); err != nil {
		return api.Usage{}, errStillInFlight(leaseID(ref), err)
	}
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	if l == nil {
		return api.Usage{}, nil
	}
	return l.served.Usage(), nil
}
