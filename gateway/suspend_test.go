package gateway

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

func suspendRequest(turn int64, lease string, client bool, timeout time.Duration) api.SuspendRequest {
	return api.SuspendRequest{
		Process: api.Process{Worker: "p/0", Incarnation: 1}, Turn: turn, LeaseID: lease, Client: client, Timeout: spec.Duration(timeout), Reason: "a look at it",
	}
}

func TestSuspendRefusesCallsUnderALeaseAndFencesItWhenTheTimeIsOver(t *testing.T) {
	e := open(t, 1)
	lease := e.lease(0, "me")
	held := background(func() answer { return e.do("POST", "/v1/leases/"+lease.ID+"/call/hold", quoted(e.file("a"))) })
	e.awaitHeld(e.file("a.began"))
	ended := background(func() api.SuspendResult {
		return e.gateway.Suspend(t.Context(), suspendRequest(1, lease.ID, true, 400*time.Millisecond))
	})
	require.Eventually(t, func() bool {
		refused := e.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil)
		return refused.status == 503
	}, timeout, poll)
	result := await(t, ended)
	require.Equal(t, 1, result.CallsCut)
	require.Equal(t, lease.ID, result.Checkin.LeaseID)
	require.EqualValues(t, 1, result.Checkin.Usage.Requests)
	await(t, held).requireProblem(t, 409, api.CodeLeaseFenced)
	e.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil).requireProblem(t, 409, api.CodeLeaseFenced)
}

func TestALaterOrderWithdrawsASuspension(t *testing.T) {
	e := open(t, 1)
	lease := e.lease(0, "me")
	require.Equal(t, "1", string(e.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil).body))
	first := background(func() api.SuspendResult {
		return e.gateway.Suspend(t.Context(), suspendRequest(1, lease.ID, true, time.Hour))
	})
	require.Eventually(t, func() bool { return e.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil).status == 503 }, timeout, poll)
	second := background(func() api.SuspendResult {
		return e.gateway.Suspend(t.Context(), suspendRequest(1, lease.ID, true, time.Hour))
	})
	require.True(t, await(t, first).Withdrawn, "a repetition takes its place")
	e.gateway.EndSuspension(t.Context(), api.ResumeRequest{Process: api.Process{Worker: "p/0", Incarnation: 1}, Turn: 2})
	require.True(t, await(t, second).Withdrawn)
	require.Equal(t, "2", string(e.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil).body), "the lease goes on")
	late := e.gateway.Suspend(t.Context(), suspendRequest(1, lease.ID, true, time.Hour))
	require.True(t, late.Withdrawn, "an order that arrives after its end changes nothing")
	require.Equal(t, "3", string(e.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil).body))
}

func TestSuspendReturnsTheGatewaysLeaseWhenItsCallsAreDone(t *testing.T) {
	e := open(t, 1)
	held := background(func() answer { return e.do("POST", "/v1/pools/p/call/hold", quoted(e.file("b"))) })
	e.awaitHeld(e.file("b.began"))
	var id string
	e.control.with("p/0", func(worker *fakeWorker) { id = worker.lease.ID })
	ended := background(func() api.SuspendResult {
		return e.gateway.Suspend(t.Context(), suspendRequest(1, id, false, time.Hour))
	})
	waiting := background(func() answer { return e.do("POST", "/v1/pools/p/call/turn", nil) })
	e.release(e.file("b"))
	require.Equal(t, 200, await(t, held).status)
	result := await(t, ended)
	require.Zero(t, result.CallsCut)
	require.Equal(t, id, result.Checkin.LeaseID)
	e.control.with("p/0", func(worker *fakeWorker) { worker.lease = nil })
	e.gateway.EndSuspension(t.Context(), api.ResumeRequest{Process: api.Process{Worker: "p/0", Incarnation: 1}, Turn: 2})
	require.Equal(t, 200, await(t, waiting).status, "a call of the pool waits for the end of the suspension")
}

func TestADrainWithdrawsASuspensionThatIsPending(t *testing.T) {
	e := open(t, 1)
	lease := e.lease(0, "me")
	held := background(func() answer { return e.do("POST", "/v1/leases/"+lease.ID+"/call/hold", quoted(e.file("d"))) })
	e.awaitHeld(e.file("d.began"))
	ended := background(func() api.SuspendResult {
		return e.gateway.Suspend(t.Context(), suspendRequest(1, lease.ID, true, time.Hour))
	})
	require.Eventually(t, func() bool { return e.do("POST", "/v1/leases/"+lease.ID+"/call/turn", nil).status == 503 }, timeout, poll)
	drained := background(func() api.DrainResult { return e.gateway.Drain(t.Context(), "p/0", 1) })
	require.True(t, await(t, ended).Withdrawn, "nothing more happens to the process, whose call is in flight")
	require.True(t, e.gateway.Suspend(t.Context(), suspendRequest(2, lease.ID, true, time.Hour)).Withdrawn, "also an order that comes late")
	e.release(e.file("d"))
	require.Equal(t, 200, await(t, held).status)
	require.True(t, await(t, drained).Drained)
}

func TestASuspensionThatIsReplacedWhileItsHookRunsIsWithdrawn(t *testing.T) {
	e := open(t, 1, withSpecEnv("SUSPEND_UNTIL", t.TempDir()+"/go"))
	path := e.spec.Pool.Env["SUSPEND_UNTIL"]
	order := func(turn int64) api.SuspendRequest {
		r := suspendRequest(turn, "", false, time.Hour)
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
	e := open(t, 1, withSpec(func(s *spec.Spec) { s.Queue.Timeout = spec.Duration(time.Hour) }))
	lease := e.lease(0, "me")
	waiting := background(func() answer { return e.do("POST", to(0, "echo"), "x") })
	ofThePool := background(func() answer { return e.do("POST", "/v1/pools/p/call/echo", "x") })
	require.Eventually(t, func() bool { return e.waiting() == 2 }, timeout, poll)
	ended := background(func() api.SuspendResult {
		return e.gateway.Suspend(t.Context(), suspendRequest(1, lease.ID, true, time.Hour))
	})
	refused := await(t, waiting)
	refused.requireProblem(t, 503, api.CodeSuspended)
	require.Empty(t, refused.header.Get("Retry-After"), "it lasts until an operator ends it")
	require.Contains(t, string(refused.body), "a look at it; ctl workers resume p --worker 0 puts it back")
	e.do("POST", to(0, "echo"), "x").requireProblem(t, 503, api.CodeSuspended)
	require.Equal(t, 1, e.waiting(), "a call of the pool waits on")

	e.gateway.EndSuspension(t.Context(), api.ResumeRequest{Process: api.Process{Worker: "p/0", Incarnation: 1}, Turn: 2})
	require.True(t, await(t, ended).Withdrawn)
	e.do("DELETE", "/v1/leases/"+lease.ID, nil)
	require.Equal(t, 200, await(t, ofThePool).status)
	require.Equal(t, 200, e.do("POST", to(0, "echo"), "x").status)
}

// An agent that took over processes knows nothing of a suspension; the worker's refusal of a checkout tells it.
func TestACallOfAWorkerWhoseSuspensionTheGatewayHasNotSeenIsRefused(t *testing.T) {
	e := open(t, 1, withSpec(func(s *spec.Spec) { s.Queue.Timeout = spec.Duration(time.Hour) }))
	e.control.with("p/0", func(worker *fakeWorker) { worker.state = lifecycle.Suspended })
	refused := e.do("POST", to(0, "echo"), "x")
	refused.requireProblem(t, 503, api.CodeSuspended)
	require.Empty(t, refused.header.Get("Retry-After"), "it lasts until an operator ends it")
}
