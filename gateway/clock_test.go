package gateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/dispatch"
	"github.com/tempool/tempool/spec"
)

// A host works whose clock differs from Temporal's.
func TestAHostWithAWrongClockServesAndRenewsSeldom(t *testing.T) {
	for name, skew := range map[string]time.Duration{
		"65 s behind": 65 * time.Second, "65 s ahead": -65 * time.Second, "an hour behind": time.Hour, "an hour ahead": -time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, 2, withSpec(func(sp *spec.Spec) { sp.Lease.TTL = spec.Duration(3 * time.Second) }))
			e.control.mu.Lock()
			e.control.skew = skew
			e.control.mu.Unlock()
			seen := e.do("POST", "/v1/pools/p/leases", dispatch.CheckoutRequest{Holder: "me", TTLMS: 1_000}).lease(t)
			require.Equal(t, 200, e.do("POST", "/v1/leases/"+seen.ID+"~"+seen.Token+"/call/echo", "x").status)
			began := time.Now()
			for time.Since(began) < 4*time.Second { // calls of the pool, on the other worker
				require.Equal(t, 200, e.do("POST", "/v1/pools/p/call/echo", "x", api.HeaderTimeout, fmt.Sprint(timeout.Milliseconds())).status)
			}
			require.LessOrEqual(t, e.control.count("renew"), int(time.Since(began)/time.Second)+1)
			e.control.setDown(true)
			e.do("POST", "/v1/leases/"+seen.ID+"~"+seen.Token+"/call/echo", "x").requireProblem(t, 409, api.CodeLeaseFenced)
		})
	}
}

// The expiry of a lease that the gateway learns of late is that of its grant, whatever the clocks say.
func TestALeaseThatIsSeenLateExpiresOnTime(t *testing.T) {
	for name, skew := range map[string]time.Duration{"same clock": 0, "an hour behind": time.Hour, "an hour ahead": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 12 * time.Second // the gateway learns of the lease in the middle of it
			e := open(t, 1)
			e.control.mu.Lock()
			e.control.skew = skew
			e.control.mu.Unlock()
			granted := time.Now()
			lease, err := e.control.Checkout(t.Context(), "p/0", tempool.CheckoutOptions{Holder: "me", TTL: ttl})
			require.NoError(t, err)
			require.Eventually(t, func() bool { return time.Since(granted) > ttl/2 }, timeout, poll)
			seen := time.Now()
			require.Equal(t, 200, e.do("POST", "/v1/leases/"+lease.ID+"/call/echo", "x").status)
			e.control.setDown(true)
			held := background(func() answer { return e.do("POST", "/v1/leases/"+lease.ID+"/call/hold", quoted(e.file("a"))) })
			e.awaitHeld(e.file("a.began"))
			await(t, held).requireProblem(t, 409, api.CodeLeaseFenced)
			require.Greater(t, time.Since(granted), ttl*9/10, "the call is cut when the lease expires")
			require.Less(t, time.Since(seen), ttl, "it does not begin when the gateway learns of it")
		})
	}
}
