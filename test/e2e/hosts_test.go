package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/gateway/dispatch"
	"github.com/tempool/tempool/worker"
)

// attempt is how one try of a call at one gateway went.
type attempt struct {
	host    string
	err     error // the connection's
	problem gateway.Problem
}

func (a attempt) ok() bool { return a.err == nil && a.problem.Status == 0 }

// unseen reports whether no worker can have seen the call, so that it may be tried elsewhere.
func (a attempt) unseen() bool {
	var dial *net.OpError
	if errors.As(a.err, &dial) {
		return dial.Op == "dial"
	}
	return a.err == nil && !a.problem.Started
}

func (a attempt) String() string { return fmt.Sprintf("%s: %v %+v", a.host, a.err, a.problem) }

func try(client *http.Client, host, path, body string) attempt {
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

func TestAHostThatDiesUnderLoadLosesTheCallsInFlightOnItAndNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	doomed := w.agent("host-a", "--capacity", "2")
	pool, notes := w.troubled("pair", 2)
	w.agent("host-b", "--capacity", "4")
	_, err := pool.Scale(t.Context(), 4)
	require.NoError(t, err)
	view := w.ready(pool, 4)
	for slot, host := range []string{"host-a", "host-a", "host-b", "host-b"} {
		require.Equal(t, host, view.Workers[slot].Host)
	}

	// Each client has one call in flight, turns to the other gateway when the one cannot serve it, and never makes a call twice that a
	// worker may have seen.
	const clients = 6
	hosts := []string{"host-a", "host-b"}
	over := map[string]*http.Client{"host-a": w.over("host-a"), "host-b": w.over("host-b")}
	var made atomic.Int64
	var mu sync.Mutex
	lost, served := map[string]attempt{}, map[string]int{}
	stop := make(chan struct{})
	var group sync.WaitGroup
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
					a := try(over[hosts[(c+n+turn)%2]], hosts[(c+n+turn)%2], "/v1/pools/pair/call/nap", `[0.03, "`+name+`"]`)
					if !a.ok() && a.unseen() {
						continue
					}
					made.Add(1)
					mu.Lock()
					if a.ok() {
						served[a.host]++
					} else {
						lost[name] = a
					}
					mu.Unlock()
					break
				}
			}
		})
	}
	enough := func(n int64) {
		require.Eventually(t, func() bool { return made.Load() >= n }, patience, 5*time.Millisecond)
	}
	enough(100)
	doomed.kill()
	atDeath := made.Load()
	enough(atDeath + 100)
	w.until(pool, "the pool is whole on the other host", func(v api.PoolWorkers) bool {
		whole := v.Ready == 4
		for _, worker := range v.Workers {
			whole = whole && worker.Host == "host-b"
		}
		return whole
	})
	close(stop)
	group.Wait()

	t.Logf("%d calls, served %v, lost %v", made.Load(), served, lost)
	require.NotEmpty(t, lost, "the host died with calls in flight")
	require.LessOrEqual(t, len(lost), clients, "each client had one call in flight")
	for name, a := range lost {
		require.Equal(t, "host-a", a.host, "%s was lost at %s", name, a)
		if a.err == nil {
			require.Equal(t, api.CodeWorkerCrashed, a.problem.Code, "%s: %s", name, a)
		}
		require.LessOrEqual(t, noted(notes, "begin "+name), 1)
	}
	for c := range clients {
		require.Equal(t, 1, noted(notes, fmt.Sprintf("begin call-%d-0.", c)), "no call ran twice")
	}
	require.Equal(t, int(made.Load()), served["host-a"]+served["host-b"]+len(lost))
}

func TestAGatewayWithoutAWorkerOfThePoolNamesTheOneThatHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("has", "--capacity", "1")
	w.start(echo("single", 1))
	w.agent("hasnot", "--labels", "other")
	idle := w.over("hasnot")
	var a attempt
	require.Eventually(t, func() bool {
		a = try(idle, "hasnot", "/v1/pools/single/call/echo", "1")
		return a.err == nil
	}, patience, 20*time.Millisecond, "the second gateway is up")
	require.Equal(t, api.CodeNoWorkers, a.problem.Code)
	require.False(t, a.problem.Started)
	require.Equal(t, []dispatch.Peer{{Host: "has", Endpoint: "unix:" + w.dir + "/has/" + worker.SocketName}}, a.problem.Gateways)
	require.True(t, try(w.over(a.problem.Gateways[0].Host), "has", "/v1/pools/single/call/echo", "1").ok())
}
