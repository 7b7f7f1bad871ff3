package e2e

import (
	"flag"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// partition is how long TestAPartitionWithLeasesAndCallsOnBothSides lasts; make soak uses 130 s.
var partition = flag.Duration("partition", 0,
	"how long to cut a host off from Temporal while both sides have leases and calls; 0 leaves it out")

// sideCalls makes calls until it is stopped. It counts those that were answered, and whether a coded error refused each
// other one.
type sideCalls struct {
	answered, refused map[string]int // by path
	answeredAfter     []string       // paths that were answered after they had been fenced
	uncoded           []string
}

func (s *sideCalls) run(t *testing.T, client *http.Client, stop <-chan struct{}, paths ...string) {
	s.answered, s.refused = map[string]int{}, map[string]int{}
	fenced := map[string]bool{}
	for {
		for _, path := range paths {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			switch a := tryCall(client, "", path, `1`); {
			case a.ok():
				s.answered[path]++
				if fenced[path] {
					s.answeredAfter = append(s.answeredAfter, path)
				}
			case a.err != nil || a.problem.Code == "":
				s.uncoded = append(s.uncoded, a.String())
			default:
				s.refused[path]++
				fenced[path] = fenced[path] || strings.Contains(path, "/v1/leases/") && a.problem.Code == api.CodeLeaseFenced
			}
		}
	}
}

// For longer than any lease and any time-out, a host is cut off from Temporal, with the defaults of a pool. Both sides
// are called all the time, by the pool's name and under leases, of which the other side gets new ones. Afterwards each
// worker has one process, and leases that have ended stay so.
func TestAPartitionWithLeasesAndCallsOnBothSides(t *testing.T) {
	if *partition == 0 {
		t.Log("a soak test; -partition 130s runs it")
		return
	}
	env := newEnv(t)
	wire := newLink(t, env.server.Address())
	env.startAgent("island", "--address", wire.addr)
	called, leased := env.startPool(echoSpec("called", 1)), env.startPool(echoSpec("leased", 1))
	island := env.gatewayClient("island")
	old := env.checkout(leased, tempool.CheckoutOptions{Holder: "before", NoRenew: true})
	oldPath := "/v1/leases/" + old.ID + "~" + old.Token + "/call/echo"
	for _, path := range []string{oldPath, "/v1/pools/called/call/echo"} {
		status, answer, _ := post(t, island, path, `1`)
		require.Equal(t, http.StatusOK, status, answer)
	}
	env.startAgent("mainland")
	mainland := env.gatewayClient("mainland")
	env.hostStatus("mainland", "the other agent joined", up)

	var callers sync.WaitGroup
	var near, far sideCalls
	stop := make(chan struct{})
	ended := sync.OnceFunc(func() { close(stop); callers.Wait() })
	defer ended()
	wire.cut()
	began := time.Now()
	callers.Go(func() { near.run(t, island, stop, "/v1/pools/called/call/echo", oldPath) })
	moved := func(v api.PoolWorkers) bool { return v.Ready == 1 && v.Workers[0].Host == "mainland" }
	env.waitFor(called, "the called worker is ready on the other host", moved)
	env.waitFor(leased, "the leased worker is ready on the other host", moved)
	renewed := env.checkout(leased, tempool.CheckoutOptions{Holder: "during"})
	newPath := "/v1/leases/" + renewed.ID + "~" + renewed.Token + "/call/echo"
	// the first call also begins the numbers of leases
	for _, path := range []string{newPath, "/v1/pools/called/call/echo"} {
		require.Eventually(t, func() bool { return tryCall(mainland, "mainland", path, `1`).ok() }, waitTimeout,
			50*time.Millisecond)
	}
	callers.Go(func() { far.run(t, mainland, stop, "/v1/pools/called/call/echo", newPath) })
	sleep(t, time.Until(began.Add(*partition)))
	before := map[*tempool.Pool]api.WorkerState{}
	for _, pool := range []*tempool.Pool{called, leased} {
		state, err := pool.State(t.Context(), 0)
		require.NoError(t, err)
		before[pool] = state
	}

	wire.heal()
	require.Eventually(t, func() bool { return readScrape(t, island).value("tempool_control_plane_up") == 1 }, waitTimeout,
		100*time.Millisecond)
	require.Eventually(t, func() bool { return len(hostProcesses("island")) == 0 }, waitTimeout, 100*time.Millisecond,
		"the old processes are gone")
	updates, from := env.updatesOf([]string{"island"}), time.Now()
	sleep(t, 20*time.Second) // with the calls of both sides continuing
	asked, took := env.updatesOf([]string{"island"})-updates, time.Since(from)
	ended()
	t.Logf("island: answered %v, refused %v; mainland: answered %v, refused %v; %.0f updates of the island in %s",
		near.answered, near.refused, far.answered, far.refused, asked, took)
	require.Less(t, asked/took.Seconds(), 3.0, "no storm")
	require.Empty(t, near.uncoded)
	require.Empty(t, far.uncoded)
	require.Empty(t, near.answeredAfter, "a lease that was fenced counts again")
	require.Positive(t, near.refused[oldPath], "the old lease ends")
	require.Positive(t, far.answered[newPath])
	require.Zero(t, far.refused[newPath], "the new lease lasts")
	require.Positive(t, far.answered["/v1/pools/called/call/echo"])
	for pool, was := range before {
		state, err := pool.State(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, was.Incarnation, state.Incarnation, "the process on the other host stays")
		require.Less(t, state.LeaseSeq-was.LeaseSeq, int64(5), "the worker is not taken and returned again and again")
	}
	require.NoError(t, renewed.Checkin(t.Context(), api.OutcomeOK))
	status, answer, code := post(t, island, oldPath, `1`)
	require.NotEqual(t, http.StatusOK, status, answer)
	require.NotEmpty(t, code)
}
