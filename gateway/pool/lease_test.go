package pool

import (
	"testing"

	"github.com/stretchr/testify/require"

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
