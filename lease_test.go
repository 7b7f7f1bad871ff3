package tempool

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/balance"
)

// leaseTTL is short for fast renewals, but long enough for a slow machine.
const leaseTTL = 400 * time.Millisecond

func checkedOut(t *testing.T, ctx context.Context, c *Client, o CheckoutOptions) *Lease {
	t.Helper()
	o.Holder = "me"
	lease, err := c.Pool("p").Checkout(ctx, o)
	require.NoError(t, err)
	return lease
}

func TestALeaseIsRenewedUntilItsCheckin(t *testing.T) {
	g := newFakeGateway(t, "unix")
	c := clientOf(t, g)
	lease := checkedOut(t, t.Context(), c, CheckoutOptions{TTL: leaseTTL})
	require.Eventually(t, func() bool { return g.renewed() >= 4 }, testTimeout, pollEvery, "more than twice the TTL")
	require.True(t, lease.Expires().After(lease.ExpiresAt))
	var out string
	require.NoError(t, lease.Call(t.Context(), "echo", "hello", &out))
	require.Equal(t, "hello", out)
	request, _ := g.last()
	for ; request.Method != "POST"; request, _ = g.last() { // a renewal came in between
		require.NoError(t, lease.Call(t.Context(), "echo", "hello", &out))
	}
	require.Equal(t, "/v1/leases/p.0.3.1/call/echo", request.URL.Path)
	require.NoError(t, lease.Notify(t.Context(), "textDocument/didChange", "x"))
	require.True(t, slices.ContainsFunc(g.requests(),
		func(r *http.Request) bool { return r.URL.Path == "/v1/leases/p.0.3.1/notify/textDocument/didChange" }))
	require.NoError(t, lease.Err())
	require.NoError(t, lease.Checkin(t.Context(), api.OutcomeOK))
	<-lease.Done()
	require.NoError(t, lease.Err())
	require.Equal(t, []string{"ok"}, g.outcomes)
	require.NoError(t, lease.Checkin(t.Context(), api.OutcomeOK), "a second checkin does nothing")
	require.Equal(t, []string{"ok"}, g.outcomes)
	served := g.served()
	require.ErrorIs(t, lease.Call(t.Context(), "echo", 1, nil), api.ErrLeaseFenced)
	for _, err := range lease.Stream(t.Context(), "echo", 1) {
		require.ErrorIs(t, err, api.ErrLeaseFenced)
	}
	require.Equal(t, served, g.served(), "a lease that is checked in sends nothing")
}

func TestTheEndOfTheContextStopsTheRenewal(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	ctx, cancel := context.WithCancel(t.Context())
	lease := checkedOut(t, ctx, clientOf(t, g), CheckoutOptions{TTL: leaseTTL, Wait: time.Minute})
	require.Eventually(t, func() bool { return g.renewed() >= 1 }, testTimeout, pollEvery)
	cancel()
	<-lease.Done()
	require.ErrorIs(t, lease.Err(), context.Canceled)
	require.NotNil(t, g.lease, "the lease is not checked in")
	require.NoError(t, lease.Checkin(t.Context(), api.OutcomeClose), "the holder still can check it in")
	require.Equal(t, []string{"close"}, g.outcomes)
}

func TestClosingTheClientStopsTheRenewal(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	c := clientOf(t, g)
	lease := checkedOut(t, t.Context(), c, CheckoutOptions{TTL: time.Minute})
	c.Close()
	<-lease.Done()
	require.ErrorIs(t, lease.Err(), api.ErrUnavailable)
	late := c.newLease(api.Lease{ID: "p.0.1.9"}, "", time.Now())
	late.state.keepRenewed(t.Context())
	<-late.Done()
	require.ErrorIs(t, late.Err(), api.ErrUnavailable, "a closed client starts no renewal")
}

func TestALostLeaseReportsWhy(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	c := clientOf(t, g)
	lease := checkedOut(t, t.Context(), c, CheckoutOptions{TTL: leaseTTL})
	g.mu.Lock()
	g.refusal = api.CodeUnavailable
	g.mu.Unlock()
	select {
	case <-lease.Done():
	case <-time.After(testTimeout):
		require.Fail(t, "nobody learns that the lease has ended")
	}
	require.Contains(t, []api.Code{api.CodeUnavailable, api.CodeDeadlineExceeded}, api.CodeOf(lease.Err()))
	require.False(t, time.Now().Before(lease.Expires()), "until then, a gateway that cannot renew it does not end it")
	g.mu.Lock()
	g.lease, g.refusal = nil, api.CodeLeaseFenced
	g.mu.Unlock()
	lease = checkedOut(t, t.Context(), c, CheckoutOptions{TTL: leaseTTL})
	<-lease.Done()
	require.ErrorIs(t, lease.Err(), api.ErrLeaseFenced)
}

func TestARenewalWithoutAnAnswerLeavesTimeForOthers(t *testing.T) {
	const ttl = 6 * time.Second
	synctest.Test(t, func(t *testing.T) {
		ends := time.Now().Add(ttl)
		var left []time.Duration
		c := NewClient(&fakeTemporal{update: func(ctx context.Context, _ client.UpdateWorkflowOptions) error {
			<-ctx.Done()
			left = append(left, time.Until(ends))
			return client.NewWorkflowUpdateServiceTimeoutOrCanceledError(ctx.Err())
		}}, "default")
		lease := c.newLease(api.Lease{ID: "p.0.1.9", GrantedAt: time.Now(), ExpiresAt: ends}, "", time.Now())
		lease.state.keepRenewed(t.Context())
		<-time.After(time.Minute)
		require.NoError(t, lease.Err(), "only its worker knows whether it has ended")
		c.Close()
		require.Greater(t, len(left), 3)
		require.GreaterOrEqual(t, left[0], ttl/4)
		require.Positive(t, left[1])
		require.Less(t, left[len(left)-1], -ttl)
	})
}

func TestALeaseThatGatewaysCannotRenewIsLostAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClient(&fakeTemporal{}, "default")
		defer c.Close()
		c.fixed = balance.NewFixed([]string{"unix:/nonexistent"})
		ends := time.Now().Add(time.Minute)
		lease := c.newLease(api.Lease{ID: "p.0.1.9", Endpoint: "unix:/nonexistent", GrantedAt: time.Now(), ExpiresAt: ends},
			"", time.Now())
		lease.state.keepRenewed(t.Context())
		<-lease.Done()
		require.WithinDuration(t, ends, time.Now(), 2*renewMinPause)
		require.ErrorIs(t, lease.Err(), api.ErrUnavailable)
	})
}

func TestNoRenewLeavesTheRenewalToTheCaller(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	c := clientOf(t, g)
	lease := checkedOut(t, t.Context(), c, CheckoutOptions{TTL: leaseTTL, NoRenew: true})
	require.Nil(t, lease.state.stopRenewal)
	require.NoError(t, lease.Renew(t.Context()), "the caller can still renew")
	require.Equal(t, 1, g.renewed())
	text, err := json.Marshal(lease)
	require.NoError(t, err)
	var message api.Lease
	require.NoError(t, json.Unmarshal(text, &message))
	unbound := Lease{Lease: message}
	require.ErrorIs(t, unbound.Renew(t.Context()), api.ErrInvalid, "a decoded lease is not usable")
	require.ErrorIs(t, unbound.Checkin(t.Context(), api.OutcomeOK), api.ErrInvalid)
	adopted := c.Adopt(message)
	raw, err := adopted.CallRaw(t.Context(), "echo", []byte("mine"))
	require.NoError(t, err)
	require.Equal(t, "mine", string(raw))
	require.NoError(t, adopted.Checkin(t.Context(), api.OutcomeError))
	require.Equal(t, []string{"error"}, g.outcomes)
}

func TestAFailedCheckinMayBeRepeated(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	c := clientOf(t, g)
	lease := checkedOut(t, t.Context(), c, CheckoutOptions{TTL: time.Minute})
	g.mu.Lock()
	g.refusal = api.CodeUnavailable
	g.mu.Unlock()
	require.ErrorIs(t, lease.Checkin(t.Context(), api.OutcomeOK), api.ErrUnavailable)
	<-lease.Done()
	require.ErrorIs(t, lease.Err(), api.ErrUnavailable, "it is held, and no longer renewed")
	g.mu.Lock()
	g.refusal = ""
	g.mu.Unlock()
	require.NoError(t, lease.Checkin(t.Context(), api.OutcomeOK))
	require.NoError(t, lease.Err())
	require.Equal(t, []string{"ok"}, g.outcomes)
}

func TestAnotherGatewayServesALeaseWhoseOwnIsGone(t *testing.T) {
	own, other := newFakeGateway(t, "tcp"), newFakeGateway(t, "tcp")
	c := clientOf(t, own, other)
	chooseFirst(t, c, own)
	lease := checkedOut(t, t.Context(), c, CheckoutOptions{TTL: time.Minute})
	own.mu.Lock()
	other.lease = own.lease
	own.mu.Unlock()
	own.answer = refusing(api.CodeUnavailable, true)
	require.ErrorIs(t, lease.Call(t.Context(), "echo", 1, nil), api.ErrUnavailable)
	require.Zero(t, other.served(), "the call may have begun")
	own.silent = true
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	require.NoError(t, lease.Renew(ctx), "a gateway that does not answer leaves time for another one")
	lease.state.setGateway(own.endpoint)
	own.server.Close()
	require.NoError(t, lease.Renew(t.Context()))
	own.answer = nil
	lease.state.setGateway(own.endpoint)
	require.NoError(t, lease.Call(t.Context(), "echo", 1, nil))
	require.Equal(t, other.endpoint, lease.state.gateway(), "it stays there")
	require.NoError(t, lease.Checkin(t.Context(), api.OutcomeOK))
	require.Equal(t, []string{"ok"}, other.outcomes)
}

func TestACheckoutWaitsForAFreeWorker(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	c := clientOf(t, g)
	first := checkedOut(t, t.Context(), c, CheckoutOptions{TTL: time.Minute})
	_, err := c.Pool("p").Checkout(t.Context(),
		CheckoutOptions{Holder: "you", TTL: time.Minute, Wait: 50 * time.Millisecond})
	require.ErrorIs(t, err, api.ErrQueueTimeout)
	require.ErrorIs(t, err, api.ErrNoWorkers)
	granted := make(chan *Lease)
	go func() {
		lease, _ := c.Pool("p").Checkout(t.Context(), CheckoutOptions{Holder: "you", TTL: time.Minute})
		granted <- lease
	}()
	require.NoError(t, first.Checkin(t.Context(), api.OutcomeOK))
	second := <-granted
	require.NotNil(t, second)
	require.Greater(t, second.Seq, first.Seq)
	require.NoError(t, second.Checkin(t.Context(), api.OutcomeOK))
}

func TestALeaseThatIsGrantedAfterTheWaitIsReturned(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	g.granting = func() { <-ctx.Done() }
	_, err := clientOf(t, g).Pool("p").Checkout(ctx, CheckoutOptions{Holder: "me", TTL: time.Minute})
	require.ErrorIs(t, err, api.ErrQueueTimeout)
	require.Nil(t, g.lease)
}

func TestACheckoutThatIsCancelledLeavesAtOnce(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	g.granting = func() {
		cancel()
		<-left
	}
	_, err := clientOf(t, g).Pool("p").Checkout(ctx, CheckoutOptions{Holder: "me", TTL: time.Minute})
	close(left)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, api.CodeCancelled, api.CodeOf(err), "it did not wait until its attempt was over")
}

func TestReadyWorkersAreTriedFirst(t *testing.T) {
	var roster []api.RosterEntry
	for i, state := range []string{"busy", "failed", "ready", "busy", "ready", "starting"} {
		var e api.RosterEntry
		require.NoError(t, json.Unmarshal([]byte(`{"state":"`+state+`"}`), &e))
		e.Slot = i
		roster = append(roster, e)
	}
	roster[4].Removing = true
	order := candidates(roster)
	require.Len(t, order, 4)
	require.Equal(t, 2, order[0].Slot)
	require.ElementsMatch(t, []int{0, 3}, []int{order[1].Slot, order[2].Slot})
	require.Equal(t, 4, order[3].Slot)
}

func TestTheTimeoutOfACallUnderALeaseBoundsTheLookIntoTheRoster(t *testing.T) {
	g := newFakeGateway(t, "tcp")
	g.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/workers" {
			g.ServeHTTP(w, r)
			return
		}
		<-r.Context().Done() // until the client gives up
	})
	g.answer = answering(http.StatusNotFound, leaseElsewhere, "http://192.0.2.1:7460")
	client := dialed(t, Options{Gateways: []string{g.endpoint}, GatewayToken: "secret secret secret"})
	lease, err := client.Pool("p").TryCheckout(t.Context(), CheckoutOptions{Holder: "me", TTL: time.Minute})
	require.NoError(t, err)
	began := time.Now()
	require.Error(t, lease.With(CallOptions{Timeout: 300 * time.Millisecond}).Call(t.Context(), "echo", 1, nil))
	require.Less(t, time.Since(began), rosterTimeout)
}
