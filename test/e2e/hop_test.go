package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/spec"
)

// A pool has one worker on each of three hosts.
func TestThreeHostsServeForOneAnother(t *testing.T) {
	need.Program(t, "curl")
	env := newEnv(t)
	var agents [3]*agent
	for i := range agents {
		agents[i] = env.startAgent(fmt.Sprintf("host-%d", i), "--capacity", "1", "--listen", "127.0.0.1:0")
	}
	s := env.troubleSpec("hop", 3)
	s.Call.CancelGrace = spec.Duration(waitTimeout) // a call that its caller gives up goes on
	pool := env.startPool(s)
	status, err := pool.Status(t.Context())
	require.NoError(t, err)
	var gateways [3]string // by host, as the numbers of their workers
	var slots [3]int
	for _, w := range status.Workers {
		var host int
		_, err := fmt.Sscanf(w.Host, "host-%d", &host)
		require.NoError(t, err)
		gateways[host], slots[host] = w.Endpoint, w.Slot
	}
	noCallWaitsWhileAnotherHostIsIdle(t, gateways[0], s.Pool.Env["NOTES"])
	for slot := range 3 { // until no worker is stuck with the call that the client gave up
		require.NoError(t, pool.Worker(slot).Call(t.Context(), "nap", []float64{0}, nil))
	}
	leaseThroughAnotherHost(t, pool, gateways, slots, agents)
}

// curl makes a request and returns the answer.
func curl(ctx context.Context, arguments ...string) (string, error) {
	answer, err := exec.CommandContext(ctx, "curl", append([]string{"-sS", "--fail-with-body"}, arguments...)...).Output()
	return string(answer), err
}

// noCallWaitsWhileAnotherHostIsIdle has a caller give up a call that goes on at its worker. Short calls to the same
// gateway do not wait for that.
func noCallWaitsWhileAnotherHostIsIdle(t *testing.T, only, notes string) {
	call := func(ctx context.Context, method, body string) error {
		_, err := curl(ctx, "-m", "60", "-d", body, only+"/v1/pools/hop/call/"+method)
		return err
	}
	release := filepath.Join(t.TempDir(), "release")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	left := make(chan error, 1)
	go func() { left <- call(ctx, "hold", fmt.Sprintf("[%q]", release)) }()
	waitForNote(t, notes, "begin")
	leave()
	require.Error(t, await(t, left))
	for range 9 {
		require.NoError(t, call(t.Context(), "nap", "[0]"))
	}
	require.NoError(t, os.WriteFile(release, nil, 0o600)) // now the call that was given up ends
}

func leaseThroughAnotherHost(t *testing.T, pool *tempool.Pool, gateways [3]string, slots [3]int, agents [3]*agent) {
	client := &http.Client{Transport: redirectTo(gateways[0])}
	taken := map[string]string{}
	for range gateways { // one gateway leases the workers of all hosts
		lease := decode[api.Lease](t, mustRequest(t, client, "POST", "/v1/pools/hop/leases",
			`{"holder":"me","wait_ms":300000}`, ""))
		taken[lease.Worker] = lease.ID + "~" + lease.Token
	}
	require.Len(t, taken, 3)
	for _, id := range taken {
		mustRequest(t, client, "DELETE", "/v1/leases/"+id, "", "")
	}
	lease, err := pool.CheckoutOnce(t.Context(), slots[1],
		tempool.CheckoutOptions{Holder: "me", TTL: time.Minute, NoRenew: true})
	require.NoError(t, err)
	base := gateways[2] + "/v1/leases/" + lease.ID + "~" + lease.Token
	answer, err := curl(t.Context(), "-i", "-d", "[0]", base+"/call/nap")
	require.NoError(t, err, answer)
	require.Contains(t, answer, fmt.Sprint(api.HeaderWorker, ": hop/", slots[1]))
	answer, err = curl(t.Context(), "-X", "DELETE", base)
	require.NoError(t, err, answer)

	// A call on a host that is killed fails, and says that it may have run. A frozen host costs one time-out.
	type attempt struct {
		answer string
		err    error
	}
	nap := func() <-chan attempt {
		result := make(chan attempt, 1)
		go func() {
			_, answer, err := send(context.Background(), client, http.MethodPost, "/v1/pools/hop/call/nap", "[600]")
			result <- attempt{answer, err}
		}()
		return result
	}
	awaitBusy := func(host int) {
		require.Eventually(t, func() bool {
			answer, err := curl(t.Context(), gateways[host]+"/v1/pools/hop/slots")
			return err == nil && answer == `{"free":0}`
		}, waitTimeout, 20*time.Millisecond)
	}
	here := nap()
	awaitBusy(0)
	agents[2].freeze()
	for range 3 {
		answer, err = curl(t.Context(), "-d", "[0]", gateways[0]+"/v1/pools/hop/call/nap")
		require.NoError(t, err, answer)
	}
	there := nap()
	awaitBusy(1)
	agents[1].kill()
	lost := <-there
	require.NoError(t, lost.err)
	problem := decode[gateway.Problem](t, lost.answer)
	require.Equal(t, api.CodeWorkerCrashed, problem.Code)
	require.True(t, problem.Started)
	select {
	case a := <-here:
		require.Fail(t, "the call on this host ended", "%+v", a)
	default:
	}
	agents[0].kill()
	require.Error(t, (<-here).err)
}

// redirectTo sends requests to http://gateway to a base URL.
type redirectTo string

func (to redirectTo) RoundTrip(r *http.Request) (*http.Response, error) {
	r.URL.Host = strings.TrimPrefix(string(to), "http://")
	r.Host = r.URL.Host
	return http.DefaultTransport.RoundTrip(r)
}
