package gateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/spec"
)

// A host works whose clock differs from Temporal's.
func TestAHostWithAWrongClockServesAndRenewsSeldom(t *testing.T) {
	t.Parallel()
	for name, skew := range map[string]time.Duration{
		"65 s behind": 65 * time.Second, "65 s ahead": -65 * time.Second, "an hour behind": time.Hour,
		"an hour ahead": -time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			// renewed after a minute, less than any skew
			e := open(t, 3, withSpec(func(sp *spec.Spec) { sp.Lease.TTL = spec.Duration(80 * time.Second) }))
			e.control.mu.Lock()
			e.control.skew = skew
			e.control.mu.Unlock()
			leased := func(ttl time.Duration) (call func() answer) {
				lease := e.do("POST", "/v1/pools/p/leases",
					pool.CheckoutRequest{Holder: "me", TTLMS: ttl.Milliseconds()}).lease(t)
				return func() answer { return e.do("POST", "/v1/leases/"+lease.ID+"~"+lease.Token+"/call/echo", "x") }
			}
			require.Equal(t, 200, leased(time.Minute)().status)
			ended := leased(time.Second)
			for began := time.Now(); time.Since(began) < 2*time.Second; { // calls of the pool, on the third worker
				require.Equal(t, 200, e.do("POST", "/v1/pools/p/call/echo", "x", api.HeaderTimeout,
					fmt.Sprint(timeout.Milliseconds())).status)
			}
			require.Zero(t, e.control.count("renew"))
			e.control.setDown(true)
			ended().requireProblem(t, 409, api.CodeLeaseFenced)
		})
	}
}

// The expiry of a lease that the gateway learns of late is that of its grant, whatever the clocks say.
func TestALeaseThatIsSeenLateExpiresOnTime(t *testing.T) {
	t.Parallel()
	for name, skew := range map[string]time.Duration{"same clock": 0, "an hour behind": time.Hour,
		"an hour ahead": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const left = 20 * time.Second // when the gateway learns of the lease
			e := open(t, 1)
			e.control.mu.Lock()
			e.control.skew = skew
			e.control.mu.Unlock()
			lease, err := e.control.Checkout(t.Context(), "p/0", tempool.CheckoutOptions{Holder: "me", TTL: time.Hour})
			require.NoError(t, err)
			seen := time.Now()
			e.control.with("p/0", func(w *fakeWorker) { // as if it had been granted long ago
				past := time.Hour - left
				w.lease.GrantedAt, w.lease.ExpiresAt = w.lease.GrantedAt.Add(-past), w.lease.ExpiresAt.Add(-past)
			})
			require.Equal(t, 200, e.do("POST", "/v1/leases/"+lease.ID+"/call/echo", "x").status)
			e.control.setDown(true)
			held := background(func() answer { return e.do("POST", "/v1/leases/"+lease.ID+"/call/hold", quoted(e.file("a"))) })
			e.awaitHeld(e.file("a.began"))
			// and not after an hour, as if it began when the gateway learned of it
			await(t, held).requireProblem(t, 409, api.CodeLeaseFenced)
			require.Greater(t, time.Since(seen), left*9/10, "the call is cut when the lease expires")
		})
	}
}
