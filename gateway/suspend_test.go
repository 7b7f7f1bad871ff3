package gateway

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

// resumption ends the first suspension of p/0.
var resumption = api.ResumeRequest{Process: api.Process{Worker: "p/0", Incarnation: 1}, Generation: 2}

func suspendRequest(generation int64, lease string, timeout time.Duration) api.SuspendRequest {
	return api.SuspendRequest{
		Process: api.Process{Worker: "p/0", Incarnation: 1}, Generation: generation, LeaseID: lease,
		Timeout: spec.Duration(timeout), Reason: "a look at it",
	}
}

// suspends sends the first order for p/0 in the background.
func (e *env) suspends(lease string) <-chan api.SuspendResult {
	return background(func() api.SuspendResult {
		return e.gateway.Suspend(e.t.Context(), suspendRequest(1, lease, time.Hour))
	})
}

// awaitSuspension waits until the first order for p/0 has arrived. A call that arrives before the order waits behind
// the one in flight.
func (e *env) awaitSuspension() {
	e.t.Helper()
	require.Eventually(e.t, func() bool { return e.gateway.Suspension("p/0", 1) != nil }, timeout, poll)
}

func TestSuspendRefusesCallsUnderALeaseAndFencesItWhenTheTimeIsOver(t *testing.T) {
	e, lease := openLeased(t)
	held := e.heldCall("/v1/leases/"+lease.ID, "a")
	waits := e.suspends(lease.ID)
	e.awaitSuspension()
	e.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil).requireProblem(t, 503, api.CodeSuspended)
	result := e.gateway.Suspend(t.Context(), suspendRequest(1, lease.ID, time.Millisecond))
	require.True(t, await(t, waits).Withdrawn, "the order is repeated with the time that is left")
	require.Equal(t, 1, result.CallsCut)
	require.Equal(t, lease.ID, result.Checkin.LeaseID)
	require.EqualValues(t, 1, result.Checkin.Usage.Requests)
	await(t, held).requireProblem(t, 409, api.CodeLeaseFenced)
	e.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil).requireProblem(t, 409, api.CodeLeaseFenced)
}

func TestALaterOrderWithdrawsASuspension(t *testing.T) {
	e, lease := openLeased(t)
	turns := 0
	call := func() answer {
		t.Helper()
		a := e.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil)
		if a.status == 200 {
			turns++
			require.Equal(t, strconv.Itoa(turns), string(a.body))
		}
		return a
	}
	require.Equal(t, 200, call().status)
	first := e.suspends(lease.ID)
	require.Eventually(t, func() bool { return call().status == 503 }, timeout, poll)
	second := e.suspends(lease.ID)
	require.True(t, await(t, first).Withdrawn, "a repetition takes its place")
	e.gateway.EndSuspension(t.Context(), resumption)
	require.True(t, await(t, second).Withdrawn)
	require.Equal(t, 200, call().status, "the lease continues")
	late := e.gateway.Suspend(t.Context(), suspendRequest(1, lease.ID, time.Hour))
	require.True(t, late.Withdrawn, "an order that arrives after its end changes nothing")
	require.Equal(t, 200, call().status)
}

func TestASuspensionLetsCallsOfThePoolEndAndCutsThemWhenTheTimeIsOver(t *testing.T) {
	e := parallel(t, 1, inflight(2))
	held := e.heldCall("/v1/pools/p", "a")
	ended := e.suspends("")
	e.awaitSuspension()
	waiting := e.queued("/v1/pools/p/call/hold", quoted(e.file("b")))
	e.finish("a", held)
	require.Equal(t, api.SuspendResult{}, await(t, ended))
	require.Equal(t, 1, e.waiting(), "a call of the pool waits for the end of the suspension")
	e.gateway.EndSuspension(t.Context(), resumption)
	e.awaitHeld(e.file("b.began"))
	cut := e.gateway.Suspend(t.Context(), suspendRequest(3, "", 0))
	require.Equal(t, 1, cut.CallsCut)
	await(t, waiting).requireProblem(t, 503, api.CodeSuspended)
}

func TestADrainWithdrawsASuspensionThatIsPending(t *testing.T) {
	e, lease := openLeased(t)
	held := e.heldCall("/v1/leases/"+lease.ID, "d")
	ended := e.suspends(lease.ID)
	e.awaitSuspension()
	drained := background(func() api.DrainResult { return e.gateway.Drain(t.Context(), "p/0", 1) })
	require.True(t, await(t, ended).Withdrawn, "nothing more happens to the process, whose call is in flight")
	require.True(t, e.gateway.Suspend(t.Context(), suspendRequest(2, lease.ID, time.Hour)).Withdrawn,
		"also an order that comes late")
	e.finish("d", held)
	require.Zero(t, await(t, drained).CallsCut)
}

func TestASuspensionThatIsReplacedWhileItsHookRunsIsWithdrawn(t *testing.T) {
	e := parallel(t, 1, withSpecEnv("SUSPEND_UNTIL", t.TempDir()+"/go"))
	path := e.spec.Pool.Env["SUSPEND_UNTIL"]
	order := func(generation int64) api.SuspendRequest {
		r := suspendRequest(generation, "", time.Hour)
		r.HookTimeout = spec.Duration(timeout)
		return r
	}
	first := background(func() api.SuspendResult { return e.gateway.Suspend(t.Context(), order(1)) })
	e.awaitHeld(path + ".began")
	second := background(func() api.SuspendResult { return e.gateway.Suspend(t.Context(), order(2)) })
	require.True(t, await(t, first).Withdrawn, "it must not freeze the process")
	e.release(path)
	result := await(t, second)
	require.False(t, result.Withdrawn)
	require.Empty(t, result.Problem)
}

func TestACallOfASuspendedWorkerIsRefusedAtOnce(t *testing.T) {
	e := parallel(t, 1, withSpec(func(s *spec.Spec) { s.Queue.Timeout = spec.Duration(time.Hour) }))
	lease := e.lease(0, "me")
	e.ok("POST", "/v1/leases/"+lease.ID+"/call/echo", "x")
	waiting, ofThePool := e.queued(to(0, "echo"), "x"), e.queued("/v1/pools/p/call/echo", "x")
	ended := e.suspends(lease.ID)
	refused := await(t, waiting)
	refused.requireProblem(t, 503, api.CodeSuspended)
	require.Empty(t, refused.header.Get("Retry-After"), "it lasts until an operator ends it")
	require.Contains(t, string(refused.body), "a look at it; tempool workers resume p/0 returns it to service")
	e.do("POST", to(0, "echo"), "x").requireProblem(t, 503, api.CodeSuspended)
	require.Equal(t, 1, e.waiting(), "a call of the pool waits on")

	e.gateway.EndSuspension(t.Context(), resumption)
	require.True(t, await(t, ended).Withdrawn)
	e.do("DELETE", "/v1/leases/"+lease.ID, nil)
	require.Equal(t, 200, await(t, ofThePool).status)
	e.ok("POST", to(0, "echo"), "x")
}

// The result of the first order is lost: its agent hands the process over, or Temporal does not get the answer.
func TestASuspensionThatIsRepeatedOrWithdrawnReturnsWhatItHasEndedBefore(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(*env){
		"to the same gateway": func(*env) {}, "to the next gateway": func(e *env) { e.replaceGateway() },
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, 1, withSpecEnv("SUSPEND_UNTIL", t.TempDir()+"/go"))
			hook := e.spec.Pool.Env["SUSPEND_UNTIL"]
			lease, order := e.suspendedInItsHook(1, hook)
			next(e)
			require.NoError(t, os.Remove(hook+".began"))
			again := background(func() api.SuspendResult { return e.gateway.Suspend(t.Context(), order) })
			e.awaitHeld(hook + ".began")
			e.do("POST", to(0, "echo"), "x").requireProblem(t, 503, api.CodeSuspended)
			e.release(hook)
			result := await(t, again)
			require.False(t, result.Withdrawn)
			require.Equal(t, 1, result.CallsCut)
			require.Equal(t, lease.ID, result.LeaseID)
			require.EqualValues(t, 1, result.Checkin.Usage.Requests)

			require.NoError(t, os.Remove(hook))
			require.NoError(t, os.Remove(hook+".began"))
			next(e)
			require.Equal(t, result, e.gateway.Suspend(t.Context(), order), "the hook has returned, and is not called again")
			require.NoFileExists(t, hook+".began")
			resumed := e.gateway.EndSuspension(t.Context(),
				api.ResumeRequest{Process: order.Process, Generation: 2, Suspended: true})
			require.Empty(t, resumed, "the worker has the result")

			e.control.with("p/0", func(worker *fakeWorker) { worker.lease = nil })
			require.NoError(t, os.Remove(e.file("a.began")))
			lease, order = e.suspendedInItsHook(3, hook)
			next(e)
			for range 2 { // its answer may be lost, too
				resumed = e.gateway.EndSuspension(t.Context(), api.ResumeRequest{Process: order.Process, Generation: 4})
				require.Equal(t, lease.ID, resumed.LeaseID)
				require.Equal(t, 1, resumed.CallsCut)
				require.EqualValues(t, 1, resumed.Checkin.Usage.Requests)
			}
			resumed = e.gateway.EndSuspension(t.Context(), api.ResumeRequest{Process: order.Process, Generation: 6})
			require.Empty(t, resumed.FencedLease, "the suspension before has not come here")
		})
	}
}

// suspendedInItsHook suspends the only worker by an order that has cut a call and whose result is lost while its hook
// runs.
func (e *env) suspendedInItsHook(generation int64, hook string) (*api.Lease, api.SuspendRequest) {
	e.t.Helper()
	lease := e.lease(0, "me")
	held := e.heldCall("/v1/leases/"+lease.ID, "a")
	order := suspendRequest(generation, lease.ID, 0)
	order.HookTimeout = spec.Duration(timeout)
	ctx, cancel := context.WithCancel(e.t.Context())
	defer cancel()
	first := background(func() api.SuspendResult { return e.gateway.Suspend(ctx, order) })
	await(e.t, held).requireProblem(e.t, 409, api.CodeLeaseFenced)
	e.awaitHeld(hook + ".began")
	cancel()
	await(e.t, first)
	return lease, order
}

// replaceGateway closes the gateway, and continues with the next one on the same processes.
func (e *env) replaceGateway() {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	require.NoError(e.t, e.gateway.Leave(ctx))
	all := map[*process.Process]*api.Suspension{}
	for _, p := range e.processes.List() {
		all[p] = e.gateway.Suspension(p.Worker(), p.Incarnation())
	}
	require.NoError(e.t, e.gateway.Close(ctx))
	for p := range all { // as wire.HandOver does: a call that the last gateway has cancelled wakes nobody in the next one
		require.Eventually(e.t, func() bool { return p.Conn().InFlight() == 0 }, timeout, poll)
	}
	e.openGateway()
	for p, suspended := range all {
		e.gateway.Resume(p, suspended, nil)
		e.gateway.Claim(p.Worker(), p.Incarnation())
	}
}

func TestResetCancelsCallsUnderTheLeaseAndClearsTheWorker(t *testing.T) {
	e, lease := openLeased(t)
	require.Equal(t, "1", string(e.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil).body))
	require.Equal(t, "2", string(e.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil).body))
	held := e.heldCall("/v1/leases/"+lease.ID, "a")

	usage, err := e.gateway.Reset(t.Context(), "p/0", 1, lease.ID)
	require.NoError(t, err)
	require.EqualValues(t, 3, usage.Requests)
	require.EqualValues(t, 1, usage.Failed)
	await(t, held).requireProblem(t, 409, api.CodeLeaseFenced)
	e.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil).requireProblem(t, 409, api.CodeLeaseFenced)

	e.control.with("p/0", func(worker *fakeWorker) { worker.lease = nil })
	next := e.lease(0, "you")
	require.Equal(t, "1", string(e.do("POST", "/v1/leases/"+next.ID+"/call/turn", nil).body),
		"it counts from the beginning")
}

func TestResetErrors(t *testing.T) {
	e := parallel(t, 1)
	require.ErrorIs(t, errorOf(e.gateway.Reset(t.Context(), "p/7", 1, "p.7.1.1")), api.ErrWorkerNotFound)

	lease := e.lease(0, "me")
	e.ok("POST", "/v1/leases/"+lease.ID+"/call/spoil", nil)
	_, err := e.gateway.Reset(t.Context(), "p/0", 1, lease.ID)
	require.ErrorIs(t, err, api.ErrWorkerError)
	require.ErrorContains(t, err, "beyond repair")

	e.control.with("p/0", func(worker *fakeWorker) { worker.lease = nil })
	lease = e.lease(0, "me")
	held := background(func() answer { return e.do("POST", "/v1/leases/"+lease.ID+"/call/stubborn", quoted(e.file("b"))) })
	e.awaitHeld(e.file("b.began"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, errorOf(e.gateway.Reset(ctx, "p/0", 1, lease.ID)), api.ErrDeadlineExceeded)
	e.release(e.file("b"))
	await(t, held)
}

func TestWorkerWithoutLeaseResetIsNotReset(t *testing.T) {
	e := parallel(t, 1, option{spec: func(sp *spec.Spec) { sp.Pool.Env["NO_RESET"] = "1" }})
	lease := e.lease(0, "me")
	_, err := e.gateway.Reset(t.Context(), "p/0", 1, lease.ID)
	require.ErrorIs(t, err, api.ErrInvalid)
	require.ErrorContains(t, err, "has no method lease.reset")
}
