package pool

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

const release = "session.release"

func TestHookThatGivesUpReleasesItsReservation(t *testing.T) {
	e, proc, p := served(t)
	u := p.upstreamOf(proc)
	held := e.hold()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, errorOf(e.dispatcher.CallHook(ctx, "p/0", release, "mine")), api.ErrBusy)
	require.Zero(t, locked(p, p.queue.Len))
	require.Equal(t, 1, locked(p, u.inFlight))
	held()
}

func TestHookIsNextWhenTheCallInFlightEnds(t *testing.T) {
	e, _, p := served(t)
	held := e.hold()
	queued := e.queued(context.Background(), 1, "released", "")
	hooked := background(func() error {
		return errorOf(e.dispatcher.CallHook(context.Background(), "p/0", release, "mine"))
	})
	require.Eventually(t, func() bool { return locked(p, p.queue.Len) == 2 }, timeout, poll)
	held()
	require.NoError(t, <-hooked)
	got := await(t, queued)
	require.NoError(t, got.err)
	require.Equal(t, `[["mine","mine"]]`, string(got.answer.Body), "it was queued before the hook and served after it")
}

// hold starts a call that holds p/0 until release is called.
func (e *env) hold() (release func()) {
	e.t.Helper()
	path := e.file("held")
	done := e.call(context.Background(), "hold", strconv.Quote(path))
	e.awaitBegan(path)
	return func() {
		e.letGo(path)
		require.NoError(e.t, await(e.t, done).err)
	}
}

func (e *env) callOfSession() <-chan error {
	return background(func() error {
		return errorOf(e.dispatcher.CallPool(e.t.Context(), "p", Request{Method: "echo", Body: []byte("x"), Session: "s"}))
	})
}

// The calls of a session wait until its process has released it, which this one never does.
func TestACallOfASessionThatIsNotReleasedEndsWithTheQueuesTimeoutOrTheGateway(t *testing.T) {
	for want, queueTimeout := range map[error]time.Duration{
		api.ErrQueueTimeout: 2 * time.Second, api.ErrUnavailable: time.Hour,
	} {
		e := newEnv(t)
		e.spec.Queue.Timeout = spec.Duration(queueTimeout)
		u := e.dispatcher.poolState("p").upstreamOf(e.start(1))
		p := u.pool
		locked(p, func() any { p.held["s"] = u; return nil })
		call := e.callOfSession()
		require.Eventually(t, func() bool { return e.dispatcher.Demand()[0].Waiting == 1 }, timeout, poll, "it is demand")
		if want == api.ErrUnavailable {
			e.dispatcher.Shut()
		}
		require.ErrorIs(t, <-call, want)
		require.Zero(t, locked(p, p.queue.Len))
	}
}

// Temporal has refused a client for good that another host was to serve: it does not wait for a second answer.
func TestAClientIsNotAskedForAgainAfterAFinalRefusal(t *testing.T) {
	e := newEnv(t)
	e.start(1)
	lease, err := e.dispatcher.Checkout(t.Context(), "p", CheckoutRequest{Holder: "another"})
	require.NoError(t, err)
	require.NotNil(t, lease)
	failed := background(func() error {
		return errorOf(e.dispatcher.Checkout(t.Context(), "p", CheckoutRequest{Holder: "me", WaitMS: timeout.Milliseconds(),
			Forward: func(context.Context, Place) error { return api.Errorf(api.CodeInvalid, "the ttl is too long") }}))
	})
	require.Eventually(t, func() bool { return e.dispatcher.Send("p", Clients, Place{}) }, timeout, poll)
	require.Equal(t, api.CodeInvalid, api.CodeOf(<-failed))
}
