package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway"
)

// attempt is the result of sending a call to one gateway.
type attempt struct {
	host    string
	err     error // of the connection
	problem gateway.Problem
}

func (a attempt) ok() bool { return a.err == nil && a.problem.Status == 0 }

// notStarted reports whether no worker can have started the call, so that a client may send it to another gateway.
func (a attempt) notStarted() bool {
	var dial *net.OpError
	if errors.As(a.err, &dial) {
		return dial.Op == "dial"
	}
	return a.err == nil && !a.problem.Started
}

func (a attempt) String() string { return fmt.Sprintf("%s: %v %+v", a.host, a.err, a.problem) }

func tryCall(client *http.Client, host, path, body string) attempt {
	a := attempt{host: host}
	response, err := client.Post("http://gateway"+path, "application/json", strings.NewReader(body))
	if err != nil {
		a.err = err
		return a
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = json.Unmarshal(content, &a.problem)
	}
	a.err = err
	return a
}

func TestADyingHostLosesOnlyItsOwnCallsInFlight(t *testing.T) {
	env := newEnv(t)
	doomed := env.startAgent("host-a", "--capacity", "2")
	pool, notes := env.startTroublePool("pair", 2)
	env.startAgent("host-b", "--capacity", "4")
	_, err := pool.Scale(t.Context(), 4)
	require.NoError(t, err)
	view := env.waitReady(pool, 4)
	for slot, host := range []string{"host-a", "host-a", "host-b", "host-b"} {
		require.Equal(t, host, view.Workers[slot].Host)
	}

	// Each client has one call in flight, and one more is on the host that dies. A client sends a call to the other
	// gateway if one cannot serve it, but never sends a call twice that a worker may have started.
	const clients = 6
	hosts := []string{"host-a", "host-b"}
	gateways := map[string]*http.Client{"host-a": env.gatewayClient("host-a"), "host-b": env.gatewayClient("host-b")}
	var calls atomic.Int64
	var mu sync.Mutex
	lost, served := map[string]attempt{}, map[string]int{}
	stop := make(chan struct{})
	var dead atomic.Bool // the host has died
	var group sync.WaitGroup
	count := func(name string, a attempt, afterDeath bool) {
		calls.Add(1)
		mu.Lock()
		defer mu.Unlock()
		if a.ok() {
			served[a.host]++
			return
		}
		lost[name] = a
		if afterDeath {
			t.Errorf("%s was lost though the host had died before: %s", name, a)
		}
	}
	group.Go(func() { // in flight for sure
		count("held.", tryCall(gateways["host-a"], "host-a", "/v1/pools/pair/call/nap", `[3600, "held."]`), false)
	})
	waitForNote(t, notes, "begin held.")
	for c := range clients {
		group.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("call-%d-%d.", c, n)
				for turn := 0; ; turn++ {
					afterDeath := dead.Load()
					a := tryCall(gateways[hosts[(c+n+turn)%2]], hosts[(c+n+turn)%2], "/v1/pools/pair/call/nap", `[0.03, "`+name+`"]`)
					if !a.ok() && a.notStarted() {
						continue
					}
					count(name, a, afterDeath)
					break
				}
			}
		})
	}
	waitForCalls := func(n int64) {
		require.Eventually(t, func() bool { return calls.Load() >= n }, waitTimeout, 5*time.Millisecond)
	}
	waitForCalls(100)
	doomed.kill()
	dead.Store(true)
	atDeath := calls.Load()
	waitForCalls(atDeath + 100)
	env.waitFor(pool, "all workers are ready on the other host", func(v api.PoolWorkers) bool {
		moved := v.Ready == 4
		for _, worker := range v.Workers {
			moved = moved && worker.Host == "host-b"
		}
		return moved
	})
	close(stop)
	group.Wait()

	t.Logf("%d calls, served %v, lost %v", calls.Load(), served, lost)
	require.Contains(t, lost, "held.", "the host died with calls in flight")
	for name, a := range lost {
		require.Equal(t, "host-a", a.host, "%s was lost at %s", name, a)
		if a.err == nil {
			require.Equal(t, api.CodeWorkerCrashed, a.problem.Code, "%s: %s", name, a)
		}
	}
	content, err := os.ReadFile(notes)
	require.NoError(t, err)
	starts := map[string]int{}
	for line := range strings.Lines(string(content)) {
		if words := strings.Fields(line); words[0] == "begin" {
			starts[words[1]]++
			require.Equal(t, 1, starts[words[1]], "%s ran twice", words[1])
		}
	}
	require.GreaterOrEqual(t, len(starts), served["host-a"]+served["host-b"], "each served call ran")
	require.Equal(t, int(calls.Load()), served["host-a"]+served["host-b"]+len(lost))
}
