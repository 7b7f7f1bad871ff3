package gateway

import (
	"flag"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

// beside starts an incarnation beside the previous one; the control plane does not know it yet.
func (e *env) beside(slot int, incarnation int64) *process.Process {
	e.t.Helper()
	p, err := e.processes.Start(e.t.Context(), process.Launch{
		Worker: api.WorkerName("p", slot), Incarnation: incarnation, Spec: e.spec, Keep: []int64{incarnation - 1},
	})
	require.NoError(e.t, err)
	e.gateway.Open(p)
	return p
}

// A program that releases sessions may keep a part of them to itself until it is drained.
func TestTheNextIncarnationServesBesideTheOlderOneUnlessThatKeepsSessions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		option
		served map[int64]int
	}{
		"without sessions":  {plain(t), map[int64]int{1: 5, 2: 5}},
		"releases sessions": {option{}, map[int64]int{1: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, 1, c.option)
			e.beside(0, 2)
			call := func() int64 {
				response, err := e.gateway.CallPool(t.Context(), "p", pool.Request{Method: "echo", Body: []byte("x")})
				require.NoError(t, err)
				return response.Incarnation
			}
			served := map[int64]int{}
			for range 10 {
				served[call()]++
			}
			require.Equal(t, c.served, served)
			e.control.add("p/0", 2)
			require.Zero(t, e.gateway.Drain(t.Context(), "p/0", 1).CallsCut)
			require.EqualValues(t, 2, call())
			first, _ := e.processes.Get("p/0", 1)
			require.EqualValues(t, c.served[1], first.Served().Usage().Requests, "each incarnation has its own count")
		})
	}
}

func TestTheBindingsOfAWorkerGoWithTheLastOfItsProcesses(t *testing.T) {
	e := open(t, 1)
	older, found := e.processes.Get("p/0", 1)
	require.True(t, found)
	newer := e.beside(0, 2)
	e.config.Affinity.Put("p", "s", "p/0", func(string, bool) bool { return true })
	for _, c := range []struct {
		process *process.Process
		want    string
	}{{older, "p/0"}, {newer, ""}} {
		seen := make(chan struct{})
		c.process.AfterEnd(func() { close(seen) }) // after those that were registered before
		c.process.Kill("the test ends it")
		<-seen
		require.Equal(t, c.want, e.config.Affinity.Where("p", "s"))
	}
}

func TestLeaseOnOlderIncarnationEndsWithOneOnTheNewer(t *testing.T) {
	e, old := openLeased(t)
	e.do("POST", "/v1/leases/"+old.ID+"/call/echo", "1")
	e.beside(0, 2)
	require.Equal(t, 200, e.do("POST", "/v1/leases/"+old.ID+"/call/echo", "1").status, "the workflow has not switched")
	e.control.add("p/0", 2)
	fresh := e.lease(0, "you")
	e.ok("POST", "/v1/leases/"+fresh.ID+"/call/echo", "2")
	e.do("POST", "/v1/leases/"+old.ID+"/call/echo", "3").requireProblem(t, 409, api.CodeLeaseFenced)
}

func TestLowScoreGetsNoCallsWhileBetterWorkersAreFree(t *testing.T) {
	scores := map[string]float64{"p/0": 10, "p/1": 90}
	e := parallel(t, 2, withConfig(func(c *Config) {
		c.Score = func(worker string, _ int64) float64 { return scores[worker] }
	}))
	for range 20 {
		response, err := e.gateway.CallPool(t.Context(), "p", pool.Request{Method: "echo", Body: []byte("x")})
		require.NoError(t, err)
		require.Equal(t, "p/1", response.Worker)
	}
}

// forks isolates the processes of the pool, which are forks.
func forks(by string) option {
	return withSpec(func(sp *spec.Spec) { sp.Isolation.By, sp.Start.Fork = by, true })
}

// served is what each process has served: a use or a key.
type served struct {
	mu sync.Mutex
	by map[string]string // by process
}

// add records the answer of the method pid, and requires that its process has served nothing else. It returns the
// process.
func (s *served) add(t *testing.T, what string, a answer) string {
	require.Equal(t, 200, a.status, "%s", a.body)
	s.mu.Lock()
	defer s.mu.Unlock()
	pid := strings.TrimSpace(string(a.body))
	if other, used := s.by[pid]; used {
		require.Equal(t, other, what, "process %s serves one only", pid)
	}
	s.by[pid] = what
	return pid
}

// Calls of the pool and leases that the gateway has not granted race for isolated processes: each process serves one
// call, or the calls of one lease.
func TestAnIsolatedProcessServesOneUse(t *testing.T) {
	e := parallel(t, 2, forks(spec.IsolateUse))
	uses := served{by: map[string]string{}}
	var all sync.WaitGroup
	for client := range 6 {
		all.Go(func() {
			for i := range 12 {
				uses.add(t, "call "+strconv.Itoa(client)+" "+strconv.Itoa(i), e.do("POST", "/v1/pools/p/call/pid", nil))
			}
		})
	}
	for slot := range 2 {
		all.Go(func() {
			for range 6 {
				lease := e.lease(slot, "client")
				path := "/v1/leases/" + lease.ID + "~" + lease.Token
				for range 3 {
					uses.add(t, lease.ID, e.do("POST", path+"/call/pid", nil))
				}
				e.ok("DELETE", path, nil)
			}
		})
	}
	all.Wait()
	require.Len(t, uses.by, 6*12+2*6)
	for _, p := range e.processes.List() {
		require.EqualValues(t, 1, p.Incarnation(), "the workflow sees one incarnation")
		require.Greater(t, p.Info().Number, int64(10))
	}

	// A failed call is a use, too; so is one whose program asks to be replaced.
	for _, method := range []string{"fail", "bug", "fatal"} {
		e.do("POST", "/v1/pools/p/call/"+method, nil)
		uses.add(t, method, e.do("POST", "/v1/pools/p/call/pid", nil))
	}
	for _, p := range e.processes.List() {
		require.False(t, p.HasEnded())
	}
}

// Clients with more keys than workers race for processes, some under leases that the gateway has not granted.
func TestAProcessServesOneKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set             func(*spec.Spec)
		clients, rounds int
	}{
		"forks": {func(sp *spec.Spec) { sp.Start.Fork = true }, 6, 20},
		"started for their keys": {func(sp *spec.Spec) {
			sp.Isolation.Env = map[string]string{"WHO": "key", "TOKEN": "header:X-Token"}
		}, 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			e := parallel(t, 2, withSpec(func(sp *spec.Spec) {
				sp.Isolation.By = spec.IsolateKey
				c.set(sp)
			}))
			e.do("POST", "/v1/pools/p/call/pid", nil).requireProblem(t, 400, api.CodeKeyRequired)
			long := strings.Repeat("k", api.MaxKey+1)
			e.do("POST", "/v1/pools/p/call/pid", nil, api.HeaderKey, long).requireProblem(t, 400, api.CodeInvalid)
			keys := served{by: map[string]string{}}
			call := func(path, key string) string {
				return keys.add(t, key, e.do("POST", path+"/call/pid", nil, api.HeaderKey, key, "X-Token", "t"))
			}
			var all sync.WaitGroup
			for client := range c.clients {
				all.Go(func() {
					for i := range c.rounds {
						call("/v1/pools/p", "key "+strconv.Itoa((client+i*i)%5))
					}
				})
			}
			for slot := range 2 {
				all.Go(func() {
					for i := range min(6, c.rounds) {
						lease := e.lease(slot, "client")
						path := "/v1/leases/" + lease.ID + "~" + lease.Token
						e.do("POST", path+"/call/pid", nil).requireProblem(t, 400, api.CodeKeyRequired)
						require.Equal(t, call(path, "key "+strconv.Itoa(i%5)), call(path, "key "+strconv.Itoa(i%5)))
						call(path, "key of "+strconv.Itoa(slot)) // the holder's, who has another one
						e.ok("DELETE", path, nil)
					}
				})
			}
			all.Wait()
			for _, p := range e.processes.List() {
				require.EqualValues(t, 1, p.Incarnation(), "the workflow sees one incarnation")
			}

			// The first calls of a new key at one instant get one process.
			for i := range c.rounds {
				var pids [3]string
				for n := range pids {
					all.Go(func() { pids[n] = call("/v1/pools/p", "new key "+strconv.Itoa(i)) })
				}
				all.Wait()
				require.Equal(t, [3]string{pids[0], pids[0], pids[0]}, pids)
			}

			// It is used again.
			require.Equal(t, call("/v1/pools/p", "mine"), call("/v1/pools/p", "mine"))
		})
	}
}

func TestAProcessHasTheEnvironmentOfItsKey(t *testing.T) {
	e := parallel(t, 1, withSpec(func(sp *spec.Spec) {
		sp.Isolation.By, sp.Isolation.Env = spec.IsolateKey, map[string]string{"TOKEN": "header:X-Token"}
	}))
	call := func(key, method string, headers ...string) answer {
		return e.do("POST", "/v1/pools/p/call/"+method, nil, append(headers, api.HeaderKey, key)...)
	}
	call("ann", "token").requireProblem(t, 400, api.CodeInvalid)
	first := call("ann", "pid", "X-Token", "1")
	require.JSONEq(t, `"1"`, string(call("ann", "token", "X-Token", "1").body))
	require.Equal(t, first.body, call("ann", "pid", "X-Token", "1").body)

	// Who knows the key, and not its secret, gets no process of it.
	require.JSONEq(t, `"guess"`, string(call("ann", "token", "X-Token", "guess").body))

	// A secret with which no process starts costs the worker nothing.
	refused := call("bob", "pid", "X-Token", "wrong")
	refused.requireProblem(t, 502, api.CodeStartFailed)
	require.NotContains(t, string(refused.body), "no such token", "the output may be another key's")
	require.JSONEq(t, `"right"`, string(call("bob", "token", "X-Token", "right").body))
	require.EqualValues(t, 1, e.processes.List()[0].Incarnation())
}

// keyRounds is the number of new keys in TestTheFirstCallsOfAKeyRaceAtTwoGateways; make soak uses 500.
var keyRounds = flag.Int("key-rounds", 50, "how many new keys call two gateways at the same time")

// Calls of one new key come to two gateways at about the same time: the key gets at most one process on each host, and
// none that has served another key.
func TestTheFirstCallsOfAKeyRaceAtTwoGateways(t *testing.T) {
	t.Parallel()
	keys := forks(spec.IsolateKey)
	b := openThere(t, keys)
	b.start(3, 1)
	a := openHere(t, b, 2, keys)
	forwarded := 0
	all := served{by: map[string]string{}}
	for i := range *keyRounds {
		key := "key " + strconv.Itoa(i)
		var calls [4]<-chan answer
		for n := range calls {
			calls[n] = background(func() answer {
				<-time.After(rand.N(2 * time.Millisecond))
				return []*env{a, b}[n%2].do("POST", "/v1/pools/p/call/pid", nil, api.HeaderKey, key)
			})
		}
		pids := map[string]string{} // by host
		for n, call := range calls {
			got := await(t, call)
			pid, host := all.add(t, key, got), "here"
			if worker := got.header.Get(api.HeaderWorker); worker == "p/1" || worker == "p/3" {
				host = "there"
			}
			require.Contains(t, []string{"", pid}, pids[host], "%s has two processes %s", key, host)
			pids[host] = pid
			if host != []string{"here", "there"}[n%2] {
				forwarded++
			}
		}
	}
	t.Logf("%d processes for %d keys; %d of %d calls went to the other host", len(all.by), *keyRounds, forwarded,
		4**keyRounds)
}

// Calls and leases of a key go to its home, whatever gateway they come to.
func TestAKeyHasAHome(t *testing.T) {
	t.Parallel()
	keys := forks(spec.IsolateKey)
	b := openThere(t, keys)
	b.start(3, 1)
	a := openHere(t, b, 2, keys) // as many workers on each host as a host is home to keys of the test
	homes, away := map[string]int{}, []string{}
	for i := range 4 {
		key := "key " + strconv.Itoa(i)
		first := a.ok("POST", "/v1/pools/p/call/pid", nil, api.HeaderKey, key)
		for _, e := range []*env{b, a} {
			require.Equal(t, string(first.body), string(e.do("POST", "/v1/pools/p/call/pid", nil, api.HeaderKey, key).body))
		}
		for _, e := range []*env{b, a} {
			l := e.taken(pool.CheckoutRequest{Holder: "h", Key: key, WaitMS: timeout.Milliseconds()})
			require.Equal(t, first.header.Get(api.HeaderWorker), l.Worker)
			e.ok("DELETE", "/v1/leases/"+l.ID, nil, api.HeaderLeaseToken, l.Token)
			if homes[l.Host]++; l.Host == "there" {
				away = append(away, key)
			}
		}
	}
	require.Equal(t, map[string]int{"here": 4, "there": 4}, homes)
	// a home whose process of the key is busy has the call wait for a while, and can still be used
	held := b.heldCall("/v1/pools/p", "held", api.HeaderKey, away[0])
	a.ok("POST", "/v1/pools/p/call/pid", nil, api.HeaderKey, away[0])
	require.True(t, a.gateway.peers.Reaches(api.Peer{Host: "there", Endpoint: b.gateway.Endpoint()}))
	b.finish("held", held)
	require.NoError(t, b.gateway.Close(t.Context()))
	got := a.ok("POST", "/v1/pools/p/call/pid", nil, api.HeaderKey, away[3])
	require.Contains(t, []string{"p/0", "p/2"}, got.header.Get(api.HeaderWorker), "its home does not answer")
}

func TestAKeyLosesItsProcessWhenItIsIdleOldOrReleased(t *testing.T) {
	t.Parallel()
	const release = "/v1/admin/pools/p/workers/0/release"
	open(t, 1).do("POST", release, nil).requireProblem(t, 400, api.CodeInvalid) // it has no keys
	for name, set := range map[string]func(*spec.Isolation){
		"idle":     func(i *spec.Isolation) { i.Idle = spec.Duration(50 * time.Millisecond) },
		"old":      func(i *spec.Isolation) { i.MaxLifetime = spec.Duration(50 * time.Millisecond) },
		"released": func(*spec.Isolation) {},
	} {
		t.Run(name, func(t *testing.T) {
			e := parallel(t, 1, forks(spec.IsolateKey), withSpec(func(sp *spec.Spec) { set(&sp.Isolation) }))
			pid := func() string {
				a := e.ok("POST", "/v1/pools/p/call/pid", nil, api.HeaderKey, "k")
				return string(a.body)
			}
			if name == "released" {
				require.Contains(t, string(e.do("POST", release, nil).body), `"process":1,"key":null,"in_flight":0}`)
			}
			first := pid()
			if name == "released" {
				require.Regexp(t, `^{"worker":"p/0","incarnation":1,"process":1,"key":{"key":"8254c329","since":"[^"]+"}`,
					string(e.do("POST", release, nil).body), "the first digits of its hash")
				e.do("POST", "/v1/admin/pools/p/workers/9/release", nil).requireProblem(t, 404, api.CodeWorkerNotFound)
			}
			require.Eventually(t, func() bool { return e.processes.List()[0].Info().Number > 1 }, timeout, 5*time.Millisecond)
			require.NotEqual(t, first, pid())
		})
	}
}
