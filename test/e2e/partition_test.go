package e2e

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// link is a TCP link that can be cut.
type link struct {
	t    *testing.T
	addr string
	dial func() (net.Conn, error) // to the far end

	mu       sync.Mutex
	listener net.Listener // nil while it is cut
	open     map[net.Conn]bool
	carried  sync.WaitGroup
}

// ownAddress returns an address for a server that may start more than once. Its IP address is of this process alone, so
// that no connection of another gets its port meanwhile.
func ownAddress(t *testing.T) string {
	t.Helper()
	pid := os.Getpid()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 64+pid>>16&63, pid>>8&255, pid&255))
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// newLink opens a link from an address until the test ends.
func newLink(t *testing.T, address string, dial func() (net.Conn, error)) *link {
	t.Helper()
	l := &link{t: t, addr: address, dial: dial, open: map[net.Conn]bool{}}
	l.heal()
	t.Cleanup(l.cut)
	return l
}

func dials(target string) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.Dial("tcp", target) }
}

// heal opens the link.
func (l *link) heal() {
	l.t.Helper()
	listener, err := net.Listen("tcp", l.addr)
	require.NoError(l.t, err)
	l.mu.Lock()
	l.listener = listener
	l.mu.Unlock()
	l.carried.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			l.carried.Go(func() { l.carry(near) })
		}
	})
}

// cut breaks every connection and refuses new ones.
func (l *link) cut() {
	l.mu.Lock()
	if l.listener != nil {
		_ = l.listener.Close()
	}
	l.listener = nil
	for c := range l.open {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.carried.Wait()
}

func (l *link) carry(near net.Conn) {
	defer near.Close()
	l.mu.Lock()
	l.open[near] = true
	cut := l.listener == nil
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.open, near)
	}()
	if cut {
		return
	}
	far, err := l.dial()
	if err != nil {
		return
	}
	defer far.Close()
	l.carried.Go(func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	})
	_, _ = io.Copy(near, far)
}

func (env *testEnv) updatesOf(hosts []string) (n float64) {
	for _, host := range hosts {
		seen := readScrape(env.t, env.gatewayClient(host))
		for _, name := range []string{"temporal_request_total", "temporal_long_request_total"} {
			for _, m := range seen.series(name, "operation", "UpdateWorkflowExecution") {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// partition is how long a host is cut off at least; make soak uses 130 s, longer than any lease and any time-out.
var partition = flag.Duration("partition", 0, "how long to cut a host off from Temporal, once its workers have moved")

// A host that cannot reach Temporal ends clients' leases on time, which nobody revives, and causes no storm when the
// link heals, though its workers have moved to another host. That one serves calls and leases all along.
func TestAHostThatIsCutOffFromTemporalEndsLeasesOnTimeAndHealsQuietly(t *testing.T) {
	env := newEnv(t)
	wire := newLink(t, ownAddress(t), dials(env.server.Address()))
	env.startAgent("island", "--address", wire.addr)
	s := echoSpec("solo", 1)
	s.Lease.TTL = spec.Duration(5 * time.Second)
	called, leased := env.startPool(s), env.startPool(echoSpec("held", 1))
	island := env.gatewayClient("island")
	const ttl = time.Minute // on a machine that stalls, it is there for the cut
	old := env.checkout(leased, tempool.CheckoutOptions{Holder: "before", TTL: ttl, NoRenew: true})
	callLease(t, old, "echo")
	end := time.Now().Add(ttl) // at the latest: the gateway knows the lease
	env.startAgent("mainland")

	wire.cut()
	began := time.Now()
	oldCode := func() string {
		_, _, code := post(t, island, "/v1/leases/"+old.ID+"~"+old.Token+"/call/echo", `1`)
		return code
	}
	require.Eventually(t, func() bool {
		sent := time.Now()
		code := oldCode()
		if code != string(api.CodeLeaseFenced) && sent.After(end) {
			t.Errorf("the lease outlives its time: a call that began %s after its end got %q", sent.Sub(end), code)
		}
		return code == string(api.CodeLeaseFenced) || t.Failed()
	}, waitTimeout, 50*time.Millisecond)
	for _, pool := range []*tempool.Pool{called, leased} {
		env.waitFor(pool, "the worker is ready on the other host", func(v api.PoolWorkers) bool {
			return v.Ready == 1 && v.Workers[0].Host == "mainland"
		})
	}
	during := env.checkout(leased, tempool.CheckoutOptions{Holder: "during"})
	callLease(t, during, "echo")
	require.Equal(t, string(api.CodeLeaseFenced), oldCode())
	for time.Since(began) < *partition {
		require.NotEmpty(t, oldCode(), "a lease that was fenced counts again")
		callLease(t, during, "echo")
		sleep(t, 100*time.Millisecond)
	}
	before := map[*tempool.Pool]api.WorkerState{}
	for _, pool := range []*tempool.Pool{called, leased} {
		state, err := pool.State(t.Context(), 0)
		require.NoError(t, err)
		before[pool] = state
	}

	wire.heal()
	require.Eventually(t, func() bool { return readScrape(t, island).has(1, "tempool_control_plane_up") }, waitTimeout,
		100*time.Millisecond)
	updates := env.updatesOf([]string{"island"})
	began = time.Now()
	for time.Since(began) < 10*time.Second { // calls of the pool through the gateway that lost its worker
		_, _ = (&http.Client{Transport: island.Transport,
			Timeout: 500 * time.Millisecond}).Post("http://gateway/v1/pools/solo/call/echo", "", nil)
		require.NotEmpty(t, oldCode(), "a lease that was fenced counts again")
		sleep(t, 20*time.Millisecond)
	}
	took := time.Since(began)
	asked := env.updatesOf([]string{"island"}) - updates
	t.Logf("the healed host sent %.0f updates in %s", asked, took)
	require.Less(t, asked/took.Seconds(), 3.0)
	for pool, was := range before {
		state, err := pool.State(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, was.Incarnation, state.Incarnation, "the process on the other host stays")
		require.Less(t, state.LeaseSeq-was.LeaseSeq, int64(5), "the worker is not taken and returned again and again")
	}
	require.Eventually(t, func() bool { return len(hostProcesses("island")) == 0 }, waitTimeout, 100*time.Millisecond,
		"the old processes are gone")
	callLease(t, during, "echo")
	require.NoError(t, during.Checkin(t.Context(), api.OutcomeOK))
	mustRequest(t, env.gatewayClient("mainland"), "POST", "/v1/pools/solo/call/echo", `2`, "")
}
