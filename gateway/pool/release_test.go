package pool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// heldSession returns a pool in which the calls of a session wait until a process has released it, which it never does.
func heldSession(t *testing.T, queueTimeout time.Duration) (*env, *poolState) {
	e := newEnv(t)
	e.spec.Queue.Timeout = spec.Duration(queueTimeout)
	u := e.dispatcher.poolState("p").upstreamOf(e.start(1))
	locked(u.pool, func() any { u.pool.held["s"] = u; return nil })
	return e, u.pool
}

func (e *env) callOfSession() <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := e.dispatcher.CallPool(e.t.Context(), "p", Request{Method: "echo", Body: []byte("x"), Session: "s"})
		ended <- err
	}()
	return ended
}

func TestACallOfASessionThatIsNotReleasedEndsWithTheQueuesTimeout(t *testing.T) {
	e, p := heldSession(t, 200*time.Millisecond)
	call := e.callOfSession()
	require.Eventually(t, func() bool { return e.dispatcher.Demand()[0].Waiting == 1 }, timeout, poll, "it is demand")
	require.ErrorIs(t, <-call, api.ErrQueueTimeout)
	require.Zero(t, locked(p, func() int { return p.queue.Len() }))
}

func TestACallOfASessionThatIsNotReleasedEndsWithTheGateway(t *testing.T) {
	e, p := heldSession(t, time.Hour)
	call := e.callOfSession()
	require.Eventually(t, func() bool { return locked(p, func() bool { return p.queue.Len() == 1 }) }, timeout, poll)
	e.dispatcher.Shut()
	require.ErrorIs(t, <-call, api.ErrUnavailable)
}

// Temporal has refused a client for good that another host was to serve: it does not wait for a second answer.
func TestAClientIsNotAskedForAgainAfterAFinalRefusal(t *testing.T) {
	e := newEnv(t)
	e.start(1)
	failed := make(chan error, 1)
	lease, err := e.dispatcher.Checkout(t.Context(), "p", CheckoutRequest{Holder: "another"})
	require.NoError(t, err)
	require.NotNil(t, lease)
	go func() {
		_, err := e.dispatcher.Checkout(t.Context(), "p", CheckoutRequest{Holder: "me", WaitMS: timeout.Milliseconds(),
			Forward: func(context.Context, Place) error { return api.Errorf(api.CodeInvalid, "the ttl is too long") }})
		failed <- err
	}()
	require.Eventually(t, func() bool { return e.dispatcher.Send("p", Clients, Place{}) }, timeout, poll)
	require.Equal(t, api.CodeInvalid, api.CodeOf(<-failed))
}

// Whoever invents names of pools while Temporal is away must not make the gateway remember them.
func TestACheckoutFromAnUnknownPoolLeavesNoState(t *testing.T) {
	e := newEnv(t)
	e.control.setDown(true)
	_, err := e.dispatcher.Checkout(t.Context(), "invented", CheckoutRequest{Holder: "me", WaitMS: 60_000})
	require.ErrorIs(t, err, api.ErrUnavailable)
	require.Nil(t, e.dispatcher.knownPool("invented"))
}
