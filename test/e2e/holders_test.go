package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/cli"
	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

var holders = flag.Int("holders", 0, "how many leases by each road the test of views takes and times")

// A lease that nobody has used yet, and the end of one, are soon in every view, by whatever road it came; with -holders
// within a second.
func TestEveryViewNamesTheHolderOfALease(t *testing.T) {
	need.Program(t, "tmux")
	const size = 8
	leases, pause := *holders, 20*time.Millisecond
	if leases == 0 { // beside other tests, which need the machine, too
		leases, pause = 1, 500*time.Millisecond
	}
	env := oneHost(t, "night")
	pool := env.startPool(echoSpec("held", size))
	term := startTerminal(t, env.dir, []string{ctlVariable + "=1"},
		os.Args[0], "top", "held", "--address", env.server.Address(), "--namespace", env.server.Namespace())
	term.shows("ready", "held/0")
	views := map[string]func() string{
		"ps":        func() string { out, _ := env.ctl(cli.ExitOK, "ps", "held"); return out },
		"status":    func() string { out, _ := env.ctl(cli.ExitOK, "pool", "status", "held"); return out },
		"dashboard": func() string { return env.page("night", "/ui/pools/held") },
		"top":       func() string { screen, _ := term.run("capture-pane", "-p"); return screen },
	}
	took := delays{pause: pause, of: map[string][]time.Duration{}}
	await := func(road, holder string, named bool) {
		agrees := map[string]func() bool{}
		for name, view := range views {
			agrees[name+" by "+road] = func() bool { return strings.Contains(view(), holder) == named }
		}
		took.await(t, agrees)
	}
	worker := func(slot int) string { return api.WorkerWorkflowID("held", slot) }
	// Each takes a lease for a holder and returns what ends it.
	roads := map[string]func(slot int, holder string) func(){
		"gateway": func(_ int, holder string) func() {
			lease := decode[api.Lease](t, mustRequest(t, env.gatewayClient("night"), "POST", "/v1/pools/held/leases",
				`{"holder":"`+holder+`","wait_ms":300000,"ttl_ms":3600000}`, ""))
			return func() {
				mustRequest(t, env.gatewayClient("night"), "DELETE", "/v1/leases/"+lease.ID+"~"+lease.Token, "", "")
			}
		},
		"update": func(slot int, holder string) func() {
			lease, err := pool.CheckoutOnce(t.Context(), slot, tempool.CheckoutOptions{Holder: holder, TTL: time.Hour})
			require.NoError(t, err)
			return func() { require.NoError(t, lease.Checkin(t.Context(), tempool.OutcomeOK)) }
		},
		"signal": func(slot int, holder string) func() {
			env.send(worker(slot), api.SignalCheckout,
				api.CheckoutRequest{Holder: holder, RequestID: holder, TTLMS: time.Hour.Milliseconds()})
			return func() {
				state, err := pool.State(t.Context(), slot)
				require.NoError(t, err)
				env.send(worker(slot), api.SignalCheckin, api.CheckinRequest{LeaseID: state.Lease.ID})
			}
		},
	}
	for road, take := range roads {
		holder := func(n int) string { return fmt.Sprintf("%s-%d.", road, n) }
		for first := 0; first < leases; first += size {
			var ends []func()
			for n := first; n < min(first+size, leases); n++ {
				ends = append(ends, take(n-first, holder(n)))
				await(road, holder(n), true)
			}
			for i, end := range ends {
				end()
				await(road, holder(first+i), false)
			}
		}
	}
	took.report(t, *holders > 0, time.Second)
}

var kills = flag.Int("kills", 0, "how many times the test of views kills a process and times them")

// A worker that answers again after the end of its process soon does so in every view; with -kills within a second,
// also on probation after an end within its first second.
func TestEveryViewShowsAWorkerThatAnswersAgain(t *testing.T) {
	times, pause := *kills, 20*time.Millisecond
	if times == 0 { // beside other tests, which need the machine, too
		times, pause = 5, 500*time.Millisecond
	}
	env := oneHost(t, "night")
	s := echoSpec("killed", 1)
	s.Recovery.MaxConsecutiveFailures, s.Recovery.BackoffMax = 1_000_000, spec.Duration(100*time.Millisecond)
	s.Recovery.BackoffInitial = s.Recovery.BackoffMax
	last := env.waitReady(env.startPool(s), 1).Workers[0]
	took := delays{pause: pause, of: map[string][]time.Duration{}}
	for range times {
		sleep(t, rand.N(3*time.Second))
		killProcess(t, last.PID)
		status := 0
		for deadline := time.Now().Add(waitTimeout); status != http.StatusOK && time.Now().Before(deadline); {
			// which waits for a worker; the gateway may not yet know of the end
			status, _, _ = post(t, env.gatewayClient("night"), "/v1/pools/killed/call/echo", `["x"]`)
		}
		require.Equal(t, http.StatusOK, status)
		var now api.Worker
		took.await(t, map[string]func() bool{
			"ps": func() bool {
				roster := ctlJSON[api.PoolWorkers](env, "ps", "killed")
				now = roster.Workers[0]
				return roster.Ready == 1 && now.Incarnation > last.Incarnation
			},
			"status": func() bool {
				report := ctlJSON[struct{ Report policy.Report }](env, "pool", "status", "killed").Report
				return report.Overview.Ready == 1 && report.Health[0].State == lifecycle.Ready
			},
			"list": func() bool {
				return slices.Contains(ctlJSON[[]listed](env, "pool", "list"), listed{Pool: "killed", Ready: 1, Size: 1})
			},
			"dashboard": func() bool {
				return strings.Contains(env.page("night", "/ui/pools/killed"), "<dd>1<small> of 1</small></dd>")
			},
		})
		last = now
	}
	took.report(t, *kills > 0, time.Second)
}

// delays are how long views took until they agreed with what had happened, by view.
type delays struct {
	pause time.Duration // between two looks at a view
	of    map[string][]time.Duration
}

// await waits until each view agrees.
func (d delays) await(t *testing.T, agrees map[string]func() bool) {
	began := time.Now()
	var each sync.WaitGroup
	var mu sync.Mutex
	for name, agree := range agrees {
		each.Go(func() {
			for time.Since(began) < waitTimeout && !agree() {
				sleep(t, d.pause)
			}
			mu.Lock()
			defer mu.Unlock()
			assert.Less(t, time.Since(began), waitTimeout, name)
			d.of[name] = append(d.of[name], time.Since(began))
		})
	}
	each.Wait()
}

// report logs the delays. If they are timed, all have to be within a limit.
func (d delays) report(t *testing.T, timed bool, limit time.Duration) {
	for name, all := range d.of {
		slices.Sort(all)
		t.Logf("%s: half of %d within %s, nine of ten within %s, all within %s", name, len(all), all[len(all)/2],
			all[len(all)*9/10], all[len(all)-1])
		if timed {
			assert.Less(t, all[len(all)-1], limit, name)
		}
	}
}
