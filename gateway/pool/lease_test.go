package pool

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
)

// Somebody tries the number of the lease that is granted next. The answer to that arrives after the grant.
func TestALeaseOutlastsTheRefusalOfWhoeverTriedItsNumberBefore(t *testing.T) {
	stranger := lease.TokenAuthority(api.NewLeaseToken(), false)
	for name, try := range map[string]func(d *Dispatcher, id string) error{
		"a call": func(d *Dispatcher, id string) error {
			return errorOf(d.Do(t.Context(), UnderLease(id, stranger), Request{Method: "echo", Body: []byte("1")}, exchange))
		},
		"a checkin": func(d *Dispatcher, id string) error {
			return errorOf(d.Checkin(t.Context(), id, stranger, "", ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.start(1)
			var granted *api.Lease
			e.control.delay = func() {
				var err error
				granted, err = e.dispatcher.Checkout(t.Context(), "p", CheckoutRequest{Holder: "me"})
				require.NoError(t, err)
			}
			_ = try(e.dispatcher, "p.0.1.1")
			require.Equal(t, "p.0.1.1", granted.ID)
			require.ErrorIs(t, e.dispatcher.CheckedIn(granted.ID, stranger), api.ErrForbidden)
			require.NoError(t, errorOf(e.dispatcher.Call(t.Context(), granted.ID, Request{Method: "echo", Body: []byte("1")})))
		})
	}
}

// Checkins of whoever makes numbers up keep no holder from its lease. Its own checkin ends it, whatever came before.
func TestALeaseThatOthersCheckInIsVerifiedThreeTimes(t *testing.T) {
	stranger := lease.TokenAuthority(api.NewLeaseToken(), false)
	for _, returned := range []bool{false, true} {
		e := newEnv(t)
		e.start(1)
		granted, err := e.control.Checkout(t.Context(), "p/0", tempool.CheckoutOptions{Holder: "me"})
		require.NoError(t, err)
		asked := 0
		var overtake func()
		overtake = func() {
			asked++
			if asked == 3 && returned {
				require.NoError(t, errorOf(e.dispatcher.Checkin(t.Context(), granted.ID, lease.Operator, "", "")))
				return
			}
			require.NoError(t, e.dispatcher.CheckedIn(granted.ID, stranger))
			e.control.mu.Lock()
			defer e.control.mu.Unlock()
			e.control.delay = overtake
		}
		e.control.delay = overtake
		call := errorOf(e.dispatcher.Call(t.Context(), granted.ID, Request{Method: "echo", Body: []byte("1")}))
		require.Equal(t, 3, asked)
		if returned {
			require.ErrorIs(t, call, api.ErrLeaseFenced)
			e.echo()
		} else {
			require.NoError(t, call)
		}
	}
}

// The client leaves while a call holds its checkin up, and checks in without the gateway.
func TestACheckinThatIsGivenUpIsAskedAbout(t *testing.T) {
	e := newEnv(t)
	e.start(1)
	granted, err := e.dispatcher.Checkout(t.Context(), "p", CheckoutRequest{Holder: "me"})
	require.NoError(t, err)
	path := e.file("held")
	call := background(func() error {
		return errorOf(e.dispatcher.Call(t.Context(), granted.ID,
			Request{Method: "hold", Body: []byte(strconv.Quote(path))}))
	})
	e.awaitBegan(path)
	gone, leave := context.WithCancel(t.Context())
	leave()
	require.ErrorIs(t, errorOf(e.dispatcher.Checkin(gone, granted.ID, lease.Operator, "", "")), api.ErrDeadlineExceeded)
	require.NoError(t, errorOf(e.control.CheckinNow(t.Context(), api.CheckinRequest{LeaseID: granted.ID})))
	e.letGo(path)
	require.NoError(t, await(t, call))
	e.echo()
}

// The answer about a first call, to a renewal, or to a question, may be older than a checkin that has come meanwhile.
func TestAnAnswerThatACheckinHasOvertakenClosesNoWorker(t *testing.T) {
	for name, ask := range map[string]func(d *Dispatcher, u *upstream, id string){
		"a first call": func(d *Dispatcher, _ *upstream, id string) {
			require.ErrorIs(t, errorOf(d.Call(t.Context(), id, Request{Method: "echo", Body: []byte("1")})), api.ErrLeaseFenced)
		},
		"a renewal": func(d *Dispatcher, _ *upstream, id string) {
			require.NoError(t, errorOf(d.Renew(t.Context(), id, lease.Operator, 0)))
		},
		"a question": func(d *Dispatcher, u *upstream, _ string) {
			locked(u.pool, func() any { u.askLocked(); return nil })
			answered := func() bool { return !u.question.asking }
			require.Eventually(t, func() bool { return locked(u.pool, answered) }, timeout, poll)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			u := e.dispatcher.poolState("p").upstreamOf(e.start(1))
			granted, err := e.control.Checkout(t.Context(), "p/0", tempool.CheckoutOptions{Holder: "me"})
			require.NoError(t, err)
			e.control.delay = func() {
				require.NoError(t, errorOf(e.dispatcher.Checkin(t.Context(), granted.ID, lease.Operator, "", "")))
			}
			ask(e.dispatcher, u, granted.ID)
			require.Nil(t, locked(u.pool, func() *activeLease { return u.lease }))
			e.echo()
		})
	}
}
